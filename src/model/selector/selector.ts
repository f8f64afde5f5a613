// Exports the selector language: `role == "db" && !has(test)`. Programs store a selector as a `ParsedSelector`. A
// `Selector` is its syntax tree, which can be combined, printed, compiled, or searched for label restrictions.
export {
  ALL_SELECTOR,
  conjunction,
  type LabelTest,
  mapLeaves,
  negate,
  prefixLabels,
  type Selector,
  type SelectorLeaf,
} from "./ast.ts";
export { compileSelector, type LabelLookup, lookupIn, type Matcher, matchesSelector } from "./compile.ts";
export { SelectorError } from "./lex.ts";
export { parseSelector, tryParseSelector } from "./parse.ts";
export { ParsedSelector } from "./parsed-selector.ts";
export { hashedId, lengthLimitedId, printSelector, uniqueId, writeSelector } from "./print.ts";
export { type LabelRestrictions, labelRestrictions } from "./restrictions.ts";
