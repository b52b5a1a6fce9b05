"""Where do patches lie? Transforms, the grid of patches and margins, the mixer, and tiles as records hold them."""
