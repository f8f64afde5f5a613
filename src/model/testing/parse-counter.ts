// Counts runs of the selector parser, for tests that a selector is parsed once.
import { SelectorLexer } from "../selector/lex.ts";

/** Counts from its creation until it is disposed. */
export class ParseCounter implements Disposable {
  /** The parser makes one lexer per text. */
  readonly #lexers = new Set<SelectorLexer>();
  readonly #original = Object.getOwnPropertyDescriptor(SelectorLexer.prototype, "next");

  constructor() {
    const lexers = this.#lexers;
    const next = this.#original?.value as SelectorLexer["next"];
    SelectorLexer.prototype.next = function (this: SelectorLexer) {
      lexers.add(this);
      return next.call(this);
    };
  }

  /** Returns the number of texts that were parsed since the last call. */
  take(): number {
    const count = this.#lexers.size;
    this.#lexers.clear();
    return count;
  }

  [Symbol.dispose](): void {
    Object.defineProperty(SelectorLexer.prototype, "next", this.#original ?? {});
  }
}
