// A selector as the program keeps it: parsed once where it enters (by an update processor or by the decoder of Typha's
// protocol), and text again only where it leaves. Equal selectors are one object, however many policies contain them, so
// they are compared with `===` and are keys of a Map.
import type { Selector } from "./ast.ts";
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
    // The same text may have been parsed again since its object was collected.
    if (ParsedSelector.#inUse.get(text)?.deref() === undefined) ParsedSelector.#inUse.delete(text);
  });

  /** Parses to the same tree again. As the only enumerable property, it decides about deep equality. */
  readonly text: string;
  readonly #tree: Selector;
  #id: string | undefined;
  #matcher: Matcher | undefined;

  private constructor(text: string, tree: Selector) {
    this.text = text;
    this.#tree = tree;
  }

  /** Blank text selects everything. Throws `SelectorError`, which says where and what was wanted. */
  static parse(text: string): ParsedSelector {
    // Other spellings are not stored: each would stay as long as the selector, and a selector has any number of them.
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

  /** Throws `SelectorError` if the tree contains a value that no text can express. */
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

  /** Calico's text of the selector, from which Calico derives names. It may parse to another tree: `!!a` is `a`. */
  get canonical(): string {
    return this.text.includes("!(!") ? printSelector(this.#tree) : this.text;
  }

  /** Calico's unique ID: `s:` and 38 characters. */
  get id(): string {
    return (this.#id ??= uniqueId("s", this.canonical));
  }

  /** Compiled at the first use: of the policies of a large cluster, a node compares few with its endpoints. */
  get matcher(): Matcher {
    return (this.#matcher ??= compileSelector(this.#tree));
  }

  /** In JSON, as in the datastore and in Typha's protocol, a selector is its text. */
  toJSON(): string {
    return this.text;
  }
}
