// The selector language: `role == "db" && !has(test)`. Parse once, keep the tree; print it, name it, compile it, or ask
// what labels it restricts.
export {
  ALL_SELECTOR,
  conjunction,
  type LabelTest,
  mapLeaves,
  negate,
  prefixLabels,
  type Selector,
  type SelectorLeaf,
} from "./selector/ast.ts";
export { compileSelector, type LabelLookup, lookupIn, type Matcher, matchesSelector } from "./selector/compile.ts";
export { SelectorError } from "./selector/lex.ts";
export { parseSelector, tryParseSelector } from "./selector/parse.ts";
export { hashedId, lengthLimitedId, printSelector, selectorId, uniqueId, writeSelector } from "./selector/print.ts";
export { type LabelRestrictions, labelRestrictions } from "./selector/restrictions.ts";
