/** Downloads of the data that the page holds: a button becomes a file, without a request. */

for (const button of document.querySelectorAll("button.download")) {
  button.addEventListener("click", () => {
    const { study = "" } = /** @type {HTMLElement} */ (button).dataset;
    const letters = atob(document.getElementById(`data-${study}`)?.textContent?.trim() ?? "");
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes], { type: "application/x-netcdf" }));
    link.download = `${study}.nc`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
