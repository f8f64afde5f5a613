// Writing BIRD's configuration language: indentation, and the only ways text of ours gets into it.
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

/** A prefix in canonical text, which is the only one that BIRD gets. */
export const prefix = (text: string): Cidr => parseCidr(text);

/** A set that holds the prefixes of these lengths inside one. */
export const prefixSet = (cidr: Cidr, lengths: { readonly min: number; readonly max: number }): string =>
  `[ ${cidr}{${lengths.min},${lengths.max}} ]`;

/** `64512:100` → `(64512, 100)`. */
export const community = (text: string): string => `(${text.split(":").join(", ")})`;

/** Which attribute a community of that shape is in. */
export const communityAttribute = (text: string): string =>
  text.split(":").length === 2 ? "bgp_community" : "bgp_large_community";

/** Names with dots and dashes stand between apostrophes. */
export const symbol = (name: string): string => (/^[a-zA-Z_][a-zA-Z0-9_]*$/.test(name) ? name : `'${name}'`);

/** A remark; names in it cannot end the line. */
export const remark = (text: string): string => `# ${text.replaceAll(/[^\x20-\x7e]/g, "?")}`;

export const anyOf = (conditions: readonly string[]): string => conditions.join(" || ");
