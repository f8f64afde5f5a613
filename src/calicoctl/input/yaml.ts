// Parses YAML (and JSON, its subset) to a tree with the offset and the written text of every value. It follows YAML 1.2: an
// unquoted `n`, `on` or `yes` is text. Numbers keep their digits, so that 64-bit numbers are exact and a number in a text
// field keeps its spelling. Duplicate keys are rejected.
import {
  EVENT_ID,
  type Event,
  getScalarValue,
  parseEvents,
  SCALAR_STYLE,
  type ScalarEvent,
  YAMLException,
} from "js-yaml";
import { describePlace, InputFault, type Place } from "./fault.ts";
import { documentAt, lineAt } from "./place.ts";

export type ScalarValue = string | number | bigint | boolean | null;

export interface ScalarNode {
  readonly kind: "scalar";
  readonly offset: number;
  readonly text: string;
  readonly value: ScalarValue;
  /** Written without quotes. Only such a scalar may be read as another type. */
  readonly plain: boolean;
}
export interface ListNode {
  readonly kind: "list";
  readonly offset: number;
  readonly items: readonly Node[];
}
export interface MapNode {
  readonly kind: "map";
  readonly offset: number;
  readonly entries: ReadonlyMap<string, { readonly offset: number; readonly node: Node }>;
}
export type Node = ScalarNode | ListNode | MapNode;

export interface Document {
  /** Counted from 1. */
  readonly number: number;
  /** Undefined if the document contains only comments. */
  readonly root: Node | undefined;
}

/** The maximum number of nodes after the expansion of aliases, which a small document can make arbitrarily large. */
const MAX_NODES = 2_000_000;

/** Receives one line about a value that was read, but probably not written as intended. */
export type Warn = (line: string) => void;

/** @throws InputFault with line and reason */
export function parseYaml(source: string, file: string, warn: Warn): Document[] {
  let events: Event[];
  try {
    events = parseEvents(source, {});
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error;
    const offset = error.mark?.position ?? 0;
    const place = { file, document: documentAt(source, offset), line: lineAt(source, offset) };
    // The parser's message contains parts of the input with line breaks; an error must be one line.
    const reason = error.reason.replaceAll(/\p{Cc}+/gu, " ").replace(/[: ]+$/, "");
    const hint = UNQUOTED_TAG.test(source.split("\n")[place.line - 1] ?? "") ? `; ${QUOTE_IT}` : "";
    throw new InputFault(place, `not YAML: ${reason}${hint}`, { cause: error });
  }
  return new TreeBuilder(source, file, events, warn).documents();
}

/** A local tag, of which calicoctl defines none. A value that looks like one is a selector such as `!has(a)`. */
const LOCAL_TAG = /^![^!<]/;
const UNQUOTED_TAG = /(^|[-:,[{]\s+)![^!<\s]/;
const QUOTE_IT = "quote a value that begins with !";

class TreeBuilder {
  readonly #source: string;
  readonly #file: string;
  readonly #warn: Warn;
  readonly #events: readonly Event[];
  #next = 0;
  #document = 0;
  #nodes = 0;
  #anchors = new Map<string, { node: Node; size: number }>();

  constructor(source: string, file: string, events: readonly Event[], warn: Warn) {
    this.#source = source;
    this.#file = file;
    this.#warn = warn;
    this.#events = events;
  }

  documents(): Document[] {
    const documents: Document[] = [];
    while (this.#next < this.#events.length) {
      this.#next++; // the start of the document
      this.#document++;
      this.#anchors = new Map();
      const empty = this.#events[this.#next]?.type === EVENT_ID.POP;
      documents.push({ number: this.#document, root: empty ? undefined : this.#node() });
      this.#next++; // the end of the document
    }
    return documents;
  }

  #node(): Node {
    const event = this.#events[this.#next++];
    const before = this.#nodes++;
    if (event === undefined) throw new Error("the event stream ends early");
    switch (event.type) {
      case EVENT_ID.ALIAS:
        return this.#alias(event.anchorStart, event.anchorEnd);
      case EVENT_ID.SCALAR:
        return this.#anchored(event, before, this.#scalar(event));
      case EVENT_ID.SEQUENCE: {
        const items: Node[] = [];
        while (this.#events[this.#next]?.type !== EVENT_ID.POP) items.push(this.#node());
        this.#next++;
        return this.#anchored(event, before, { kind: "list", offset: event.start, items });
      }
      case EVENT_ID.MAPPING: {
        const entries = this.#entries();
        this.#next++;
        return this.#anchored(event, before, { kind: "map", offset: event.start, entries });
      }
      default:
        throw new Error(`unexpected event ${event.type}, want a value`);
    }
  }

  #entries(): Map<string, { offset: number; node: Node }> {
    const entries = new Map<string, { offset: number; node: Node }>();
    const merged: { offset: number; node: Node }[] = [];
    while (this.#events[this.#next]?.type !== EVENT_ID.POP) {
      const key = this.#node();
      if (key.kind !== "scalar") throw this.#fault(key.offset, "a key must be a scalar, not a list or a map");
      const node = this.#node();
      const isMerge = key.plain && key.text === "<<";
      const first = isMerge ? merged[0] : entries.get(key.text);
      if (first !== undefined) {
        const line = lineAt(this.#source, first.offset);
        throw this.#fault(key.offset, `key ${JSON.stringify(key.text)} is given twice, first on line ${line}`);
      }
      if (isMerge) merged.push({ offset: key.offset, node });
      else entries.set(key.text, { offset: key.offset, node });
    }
    // A merge adds only keys that the map does not have; earlier merges take precedence.
    for (const { offset, node } of merged)
      for (const part of node.kind === "list" ? node.items : [node]) {
        if (part.kind !== "map") throw this.#fault(offset, "want a map or a list of maps after <<");
        for (const [key, entry] of part.entries) if (!entries.has(key)) entries.set(key, entry);
      }
    return entries;
  }

  #scalar(event: ScalarEvent): ScalarNode {
    const text = getScalarValue(this.#source, event);
    const offset = event.valueStart;
    const tag = event.tagStart < 0 ? undefined : this.#source.slice(event.tagStart, event.tagEnd);
    const plain = event.style === SCALAR_STYLE.PLAIN && tag === undefined;
    if (tag === undefined) return { kind: "scalar", offset, text, value: plain ? resolve(text) : text, plain };
    const isPlain = event.style === SCALAR_STYLE.PLAIN;
    if (tag === "!" && isPlain && text !== "")
      this.#warnAt(event.tagStart, `YAML drops the ! before ${text}; quote the value to keep it`);
    if (tag === "!!str" || tag === "!") return { kind: "scalar", offset, text, value: text, plain: false };
    if (LOCAL_TAG.test(tag)) {
      if (!isPlain || text !== "")
        throw this.#fault(offset, `${tag} is not a YAML tag that calicoctl reads; ${QUOTE_IT}`);
      // Calico drops the tag, so that the selector is empty and selects everything.
      const reason = `read ${tag} as text; in YAML a value that begins with ! must be quoted: '${tag}'`;
      this.#warnAt(event.tagStart, reason);
      return { kind: "scalar", offset: event.tagStart, text: tag, value: tag, plain: false };
    }
    const value = resolve(text);
    if (KNOWN_TAGS.get(tag)?.(value) !== true)
      throw this.#fault(offset, `${JSON.stringify(text)} is not a valid ${tag}`);
    return { kind: "scalar", offset, text, value, plain };
  }

  #anchored(event: { anchorStart: number; anchorEnd: number }, nodesBefore: number, node: Node): Node {
    if (event.anchorStart >= 0) {
      const name = this.#source.slice(event.anchorStart, event.anchorEnd);
      this.#anchors.set(name, { node, size: this.#nodes - nodesBefore });
    }
    return node;
  }

  #alias(start: number, end: number): Node {
    const found = this.#anchors.get(this.#source.slice(start, end));
    if (found === undefined)
      throw this.#fault(start, `alias ${this.#source.slice(start, end)} has no anchor before it`);
    this.#nodes += found.size;
    if (this.#nodes > MAX_NODES) throw this.#fault(start, `aliases expand to more than ${MAX_NODES} values`);
    return found.node;
  }

  #fault(offset: number, reason: string): InputFault {
    return new InputFault(this.#placeAt(offset), reason);
  }

  #warnAt(offset: number, reason: string): void {
    this.#warn(`Warning: ${describePlace(this.#placeAt(offset))}: ${reason}\n`);
  }

  #placeAt(offset: number): Place {
    return { file: this.#file, document: this.#document, line: lineAt(this.#source, offset) };
  }
}

const KNOWN_TAGS: ReadonlyMap<string, (value: ScalarValue) => boolean> = new Map([
  ["!!int", (value) => typeof value === "bigint" || Number.isInteger(value)],
  ["!!float", (value) => typeof value === "number"],
  ["!!bool", (value) => typeof value === "boolean"],
  ["!!null", (value) => value === null],
]);

const INTEGER = /^[-+]?(0|[1-9][0-9]*)$/;
const OTHER_BASE = /^0(o[0-7]+|x[0-9a-fA-F]+)$/;
/** Integers of YAML 1.1 that YAML 1.2 does not have, after `_` is removed: Kubernetes programs read 010 as eight. */
const OLD_INTEGER = /^([-+]?)(0b[01]+|0o?[0-7]+|0x[0-9a-fA-F]+|[1-9][0-9]*)$/;
const FLOAT = /^[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?$/;

/** Resolves an unquoted scalar by the core schema of YAML 1.2, extended by the integers of YAML 1.1. */
export function resolve(text: string): ScalarValue {
  switch (text) {
    case "":
    case "~":
    case "null":
    case "Null":
    case "NULL":
      return null;
    case "true":
    case "True":
    case "TRUE":
      return true;
    case "false":
    case "False":
    case "FALSE":
      return false;
    default:
  }
  const first = text.charCodeAt(0);
  const mayBeNumber = (first >= 48 && first <= 57) || first === 45 || first === 43 || first === 46;
  if (!mayBeNumber) return text;
  if (INTEGER.test(text) || OTHER_BASE.test(text)) {
    const value = Number(text);
    return Number.isSafeInteger(value) ? value : BigInt(text.replace(/^\+/, ""));
  }
  const [, sign, digits] = OLD_INTEGER.exec(text.replaceAll("_", "")) ?? [];
  if (digits !== undefined) {
    const magnitude = BigInt(digits.replace(/^0(?=[0-7])/, "0o"));
    const value = sign === "-" ? -magnitude : magnitude;
    return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  }
  // A number that is too large (1e400) remains text.
  return FLOAT.test(text) && Number.isFinite(Number(text)) ? Number(text) : text;
}
