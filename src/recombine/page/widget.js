/**
 * The explorer as a notebook widget (anywidget): the page in a frame.
 *
 * The frame is sandboxed: the page has neither the notebook's origin nor its cookies, and its own policy applies.
 * The notebook and the page exchange only the address of the view.
 */

/** Shows the page and returns a function that removes it. @param {{model: any, el: HTMLElement}} view of anywidget */
function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.title = "Decoder explorer";
  frame.setAttribute("sandbox", "allow-scripts");
  Object.assign(frame.style, { width: "100%", height: `${model.get("height")}px`, border: "0" });
  const send = () => frame.contentWindow?.postMessage({ address: model.get("address") }, "*");
  let ready = false; // the page ignores addresses until it is ready
  const receive = (/** @type {MessageEvent} */ event) => {
    if (event.source !== frame.contentWindow) return;
    if (event.data?.ready === true) {
      ready = true;
      send();
      return;
    }
    const address = event.data?.address;
    if (!ready || typeof address !== "string" || address === model.get("address")) return;
    model.set("address", address);
    model.save_changes();
  };
  window.addEventListener("message", receive);
  model.on("change:address", send);
  let link = "";
  try {
    frame.srcdoc = model.get("html");
  } catch { // the notebook enforces trusted types, which forbid HTML from strings
    link = URL.createObjectURL(new Blob([model.get("html")], { type: "text/html" }));
    frame.src = link;
  }
  el.append(frame);
  return () => {
    window.removeEventListener("message", receive);
    model.off("change:address", send);
    if (link) URL.revokeObjectURL(link);
  };
}

export default { render };
