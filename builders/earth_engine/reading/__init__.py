"""How are patches and pixels read for training? With their places on the map, in any order of a read."""
