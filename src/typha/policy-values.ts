// Decodes policies and profiles from Typha's protocol: JSON with selectors as text. The selectors are parsed here, once.
// The objects that JSON.parse returned are modified and used: a client decodes 100,000 policies, and copying them would
// take as long as parsing.
import { WrongShape } from "../lib/encoding/json-reader.ts";
import { ParsedSelector, type Policy, type ProfileRules } from "../model/index.ts";

/** An object that JSON.parse returned, and nothing else refers to. */
type Fields = Record<string, unknown>;

/** Throws an error for which `isValueError` is true. */
export function decodePolicy(json: unknown): Policy {
  const policy = fieldsOf(json, "policy");
  policy["selector"] = ParsedSelector.parse(textOf(policy["selector"], "selector"));
  decodeRules(policy);
  return policy as unknown as Policy;
}

/** Throws an error for which `isValueError` is true. */
export function decodeProfileRules(json: unknown): ProfileRules {
  const profile = fieldsOf(json, "profile");
  decodeRules(profile);
  return profile as unknown as ProfileRules;
}

function decodeRules(owner: Fields): void {
  for (const direction of ["inboundRules", "outboundRules"]) {
    const rules = owner[direction];
    if (!Array.isArray(rules)) throw new WrongShape(direction, "a list");
    for (const [i, json] of rules.entries()) {
      const rule = fieldsOf(json, `${direction}[${i}]`);
      for (const side of ["source", "destination"]) decodeSide(fieldsOf(rule[side], `${direction}[${i}].${side}`));
    }
  }
}

function decodeSide(side: Fields): void {
  for (const field of ["selector", "notSelector"]) {
    if (side[field] === undefined) continue;
    const text = textOf(side[field], field);
    if (text === "") delete side[field];
    else side[field] = ParsedSelector.parse(text);
  }
}

function fieldsOf(json: unknown, path: string): Fields {
  if (typeof json !== "object" || json === null || Array.isArray(json)) throw new WrongShape(path, "an object");
  return json as Fields;
}

function textOf(json: unknown, path: string): string {
  if (typeof json !== "string") throw new WrongShape(path, "text");
  return json;
}
