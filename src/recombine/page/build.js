/** Assembles the compiled kernel, `matmul.wasm`, from its text. Run by `npm run build` after a change of the text. */

import fs from "node:fs";
import wabt from "wabt";

const text = new URL("matmul.wat", import.meta.url);
const { parseWat } = await wabt();
const { buffer } = parseWat("matmul.wat", fs.readFileSync(text, "utf8"), { simd: true }).toBinary({});
fs.writeFileSync(new URL("matmul.wasm", import.meta.url), buffer);
