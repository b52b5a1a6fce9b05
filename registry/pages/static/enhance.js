// Every page works without this script. It adds buttons that copy code, and fills a text from a file.
"use strict";
for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.closest("figure").querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
for (const area of document.querySelectorAll("[data-drop]")) {
  const fill = async (files) => { if (files.length && files[0].size < 2 ** 18) area.value = await files[0].text(); };
  const choose = area.form.querySelector("[data-choose]");
  choose.hidden = false;
  choose.addEventListener("change", (event) => fill(event.target.files));
  area.addEventListener("dragover", (event) => event.preventDefault());
  area.addEventListener("drop", (event) => { event.preventDefault(); fill(event.dataTransfer.files); });
}
