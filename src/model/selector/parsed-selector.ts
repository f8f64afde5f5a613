// Represents a selector in memory. It is parsed once where it enters the program (by an update processor, a reader or the
// decoder of Typha's protocol), and printed only where it leaves. Equal selectors are one object, so they are compared
// with `===` and used as keys of a Map.
import { foldSelector, type Selector } from "./ast.ts";
import { compileSelector, type Matcher } from "./compile.ts";
import { SelectorError } from "./lex.ts";
import { parseSelector } from "./parse.ts";
import { printSelector, uniqueId, writeSelector } from "./print.ts";

export class ParsedSelector {
  /**
   * All selectors in use, by text. The references are weak because no size limit is right: `===` requires that every
   * selector in use is found, and 1,000 unused ones could fill the memory, since one may be as large as its policy (1.5 MB).
   */
  static readonly #inUse = new Map<string, WeakRef<ParsedSelector>>();
  static readonly #cleanup = new FinalizationRegistry<string>((text) => {
    // The same text may have been parsed again since its object was garbage-collected.
    if (ParsedSelector.#inUse.get(text)?.deref() === undefined) ParsedSelector.#inUse.delete(text);
  });

  /** Text that parses to the same tree. It is the only enumerable property, so it determines deep equality. */
  readonly text: string;
  readonly #tree: Selector;
  #id: string | undefined;
  #matcher: Matcher | undefined;
  #termCount = 0;

  private constructor(text: string, tree: Selector) {
    this.text = text;
    this.#tree = tree;
  }

  /**
   * Parses a selector. Blank text selects everything.
   * @throws SelectorError with the position and the expected token
   */
  static parse(text: string): ParsedSelector {
    // Only the canonical spelling is stored in the table. A selector has an unlimited number of other spellings, and each
    // would be kept as long as the selector.
    return ParsedSelector.#inUse.get(text)?.deref() ?? ParsedSelector.of(parseSelector(text));
  }

  /** Undefined if the text does not parse. */
  static tryParse(text: string): ParsedSelector | undefined {
    try {
      return ParsedSelector.parse(text);
    } catch (error) {
      if (error instanceof SelectorError) return undefined;
      throw error;
    }
  }

  /** @throws SelectorError if the tree contains a value that cannot be quoted */
  static of(tree: Selector): ParsedSelector {
    const text = writeSelector(tree);
    const known = ParsedSelector.#inUse.get(text)?.deref();
    if (known !== undefined) return known;
    const selector = new ParsedSelector(text, tree);
    ParsedSelector.#inUse.set(text, new WeakRef(selector));
    ParsedSelector.#cleanup.register(selector, text);
    return selector;
  }

  get tree(): Selector {
    return this.#tree;
  }

  /** The canonical text of Calico, from which names are derived. It may parse to another tree: `!!a` is `a`. */
  get canonical(): string {
    return this.text.includes("!(!") ? printSelector(this.#tree) : this.text;
  }

  /** Calico's unique ID: `s:` and 38 characters. */
  get id(): string {
    return (this.#id ??= uniqueId("s", this.canonical));
  }

  /** Compiled at the first use, because a node of a large cluster uses only some selectors for matching. */
  get matcher(): Matcher {
    return (this.#matcher ??= compileSelector(this.#tree));
  }

  /** The number of tests that a match may take. A list of values is one test. */
  get termCount(): number {
    if (this.#termCount === 0)
      this.#termCount = foldSelector<number>(this.#tree, {
        leaf: () => 1,
        not: (operand) => operand,
        list: (_, operands) => operands.reduce((sum, operand) => sum + operand, 0),
      });
    return this.#termCount;
  }

  /** The JSON form is the text, as in the datastore and in Typha's protocol. */
  toJSON(): string {
    return this.text;
  }
}
