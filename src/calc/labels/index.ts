export { LabelIndex, type LabelIndexStats } from "./label-index.ts";
export { LabelItem } from "./item.ts";
export { SelectorEntry } from "./selector-entry.ts";
