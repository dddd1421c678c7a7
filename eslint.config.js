const browser = [
  "document", "window", "location", "history", "navigator", "atob", "performance", "requestAnimationFrame", "setTimeout",
  "clearTimeout", "getComputedStyle", "ImageData", "WebAssembly", "IntersectionObserver", "Worker", "Blob",
  "MessageChannel", "ResizeObserver", "DecompressionStream", "Response", "URLSearchParams",
];
const node = ["process", "console", "URL"];

export default [
  {
    files: ["src/recombine/page/**/*.js", "src/recombine/reproduction/report/*.js", "tests/page/**/*.js"],
    languageOptions: {
      ecmaVersion: 2022,
      sourceType: "module",
      globals: Object.fromEntries([...browser, ...node].map((name) => [name, "readonly"])),
    },
    rules: {
      "no-undef": "error", "no-unused-vars": "error", "prefer-const": "error", "no-var": "error", eqeqeq: "error",
      "no-eval": "error", "no-implied-eval": "error", "no-shadow": "error", "no-console": "off", "no-new": "off",
      "max-len": ["error", { code: 120 }], "no-constant-condition": ["error", { checkLoops: false }],
      "no-restricted-properties": ["error", { property: "innerHTML" }, { property: "outerHTML" },
        { property: "insertAdjacentHTML" }],
    },
  },
];
