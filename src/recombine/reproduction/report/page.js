/** Download buttons for the Datasets embedded in the page, and figures that are ready before the page is printed. */

/** @param {string} study */
async function dataOf(study) {
  const letters = atob(document.getElementById(`data-${study}`)?.textContent?.trim() ?? "");
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).blob();
}

for (const button of document.querySelectorAll("button.download")) {
  button.addEventListener("click", async () => {
    const { study = "" } = /** @type {HTMLElement} */ (button).dataset;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await dataOf(study));
    link.download = `${study}.nc`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}

// browsers do not wait for lazy images when they print
window.addEventListener("load", async () => {
  for (const image of document.querySelectorAll("img")) {
    image.loading = "eager";
    await image.decode().catch(() => null);
  }
});
