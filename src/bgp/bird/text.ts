// Formats text for BIRD's configuration language. Names, prefixes and comments get into the configuration only through these
// functions, which prevent injection.
import { type Cidr, parseCidr } from "../../lib/ip/ip.ts";

/** Lines; nested lists are indented. */
export type Lines = readonly (string | Lines)[];

export function joinLines(lines: Lines, indent = ""): string {
  return lines
    .map((line) =>
      typeof line === "string" ? `${line === "" ? "" : indent + line}\n` : joinLines(line, `${indent}  `),
    )
    .join("");
}

/** `head {`, the body, `}`. */
export const block = (head: string, body: Lines, end = "}"): Lines => [`${head} {`, body, end];

/** Returns the canonical text of a prefix. */
export const prefix = (text: string): Cidr => parseCidr(text);

/** The set of all prefixes of these lengths inside `cidr`. */
export const prefixSet = (cidr: Cidr, lengths: { readonly min: number; readonly max: number }): string =>
  `[ ${cidr}{${lengths.min},${lengths.max}} ]`;

/** `64512:100` → `(64512, 100)`. */
export const community = (text: string): string => `(${text.split(":").join(", ")})`;

/** The attribute for standard (`1:2`) or large (`1:2:3`) communities. */
export const communityAttribute = (text: string): string =>
  text.split(":").length === 2 ? "bgp_community" : "bgp_large_community";

/** Quotes names with dots and dashes. */
export const symbol = (name: string): string => (/^[a-zA-Z_][a-zA-Z0-9_]*$/.test(name) ? name : `'${name}'`);

/** A comment line. Replaces control characters, so that names in it cannot end the line. */
export const comment = (text: string): string => `# ${text.replaceAll(/[^\x20-\x7e]/g, "?")}`;

export const anyOf = (conditions: readonly string[]): string => conditions.join(" || ");
