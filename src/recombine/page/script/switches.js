/** Selection of decoders by their labels, with one list per label for each of the two decoders shown. */

import { shortened } from "./grid.js";
import { element } from "./pictures.js";

/**
 * Returns the decoder with the given value of one label that differs from the current one in the fewest other labels.
 * @param {string[][]} labels of every decoder @param {number} present @param {number} label @param {string} value
 */
export function nearestDecoder(labels, present, label, value) {
  const score = (/** @type {string[]} */ own) => own.filter((text, k) => text === labels[present][k]).length;
  let best = present;
  let most = -1;
  for (const [number, own] of labels.entries()) {
    if (own[label] !== value || score(own) <= most) continue;
    [best, most] = [number, score(own)];
  }
  return best;
}

/** The lists for one decoder. */
class Switch {
  /**
   * @param {string} title @param {string} prefix of the lists' ids
   * @param {string[]} names @param {string[][]} labels of every decoder @param {(number: number) => void} choose
   */
  constructor(title, prefix, names, labels, choose) {
    this.names = names;
    this.labels = labels;
    this.present = 0;
    this.root = element("fieldset", "switch");
    this.root.append(element("legend", "", title));
    this.values = names.map((_, k) => [...new Set(labels.map((own) => own[k]))]);
    this.lists = names.map((name, k) => this.#list(name, `${prefix}-${k}`, k, choose));
    this.note = element("p", "soft");
    this.note.setAttribute("role", "status");
    this.root.append(this.note);
  }

  /** @param {string} name @param {string} id @param {number} label @param {(number: number) => void} choose */
  #list(name, id, label, choose) {
    const list = document.createElement("select");
    list.id = id;
    list.append(...this.values[label].map((value) => element("option", "", shortened(value))));
    list.addEventListener("change", () => {
      const value = this.values[label][list.selectedIndex];
      const next = nearestDecoder(this.labels, this.present, label, value);
      const changed = [...this.names.keys()].filter((k) => k !== label && !this.#shares(next, k));
      const words = changed.map((k) => `${shortened(this.names[k])} is now ${shortened(this.labels[next][k])}`);
      const before = `These settings are not available with ${shortened(name)} ${shortened(value)}: `;
      this.note.textContent = changed.length ? `${before}${words.join(", ")}.` : "";
      choose(next);
    });
    const around = element("label", "", shortened(name));
    around.append(list);
    this.root.append(around);
    return list;
  }

  /** Whether a decoder shares a label with the current one. @param {number} number @param {number} label */
  #shares(number, label) {
    return this.labels[number][label] === this.labels[this.present][label];
  }

  /** @param {number} number of the decoder */
  show(number) {
    this.present = number;
    for (const [k, list] of this.lists.entries()) {
      const own = this.values[k].indexOf(this.labels[number][k]);
      if (list.selectedIndex !== own) list.selectedIndex = own;
      for (const [place, option] of [...list.options].entries()) {
        const next = nearestDecoder(this.labels, number, k, this.values[k][place]);
        const alone = this.names.every((_, j) => j === k || this.#shares(next, j));
        option.textContent = shortened(this.values[k][place]) + (alone ? "" : " *");
      }
    }
  }
}

export class Switches {
  /**
   * @param {HTMLElement} root @param {PageData} data @param {string[]} names of the labels
   * @param {(change: Partial<State>) => void} change
   */
  constructor(root, data, names, change) {
    this.root = root;
    root.hidden = false;
    const labels = data.models.map((model) => model.labels ?? []);
    this.first = new Switch("Decoder", "switch", names, labels, (decoder) => change({ decoder }));
    this.second = new Switch("Compared with", "beside-switch", names, labels, (beside) => change({ beside }));
    this.both = document.createElement("input");
    Object.assign(this.both, { type: "checkbox", id: "compare" });
    this.both.addEventListener("change", () => {
      const [first, second] = [this.first.present, this.second.present];
      const other = first === second ? Number(first === 0) : second; // the one last compared with the first, or any
      change({ beside: this.both.checked ? other : -1 });
    });
    const around = element("label", "check");
    around.append(this.both, " two decoders side by side");
    const line = element("p", "soft");
    line.append(around, element("span", "", "* also changes another label"));
    root.append(line, this.first.root, this.second.root);
  }

  /** @param {State} state */
  show(state) {
    const two = state.beside >= 0;
    this.both.checked = two;
    this.first.show(state.decoder);
    if (two) this.second.show(state.beside);
    this.second.root.hidden = !two;
    this.root.classList.toggle("two", two);
  }
}
