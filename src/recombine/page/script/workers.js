/** Starting of workers from text in the page. */

/** What starts a worker, by the name of the trusted-types policy, which a page can make only once. */
const ADDRESSES = new Map();

/**
 * Starts a worker from the page's own text, since the page's policy allows nothing else.
 * @param {string} text @param {string} name of the trusted-types policy @returns {Worker}
 */
export function workerOf(text, name) {
  if (!ADDRESSES.has(name)) {
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const { trustedTypes } = /** @type {any} */ (window);
    const policy = trustedTypes?.createPolicy(name, { createScriptURL: () => address });
    ADDRESSES.set(name, policy ? policy.createScriptURL("") : address);
  }
  return new Worker(ADDRESSES.get(name));
}
