// Evaluates selectors naively. Property tests compare the results of compiled selectors with it, a benchmark their speed.
import type { LabelTest, Selector } from "../selector/selector.ts";

/** Whether the selector matches the labels. */
export function interpretSelector(s: Selector, labels: ReadonlyMap<string, string>): boolean {
  const test = (s: LabelTest): boolean => {
    const value = labels.get(s.label);
    switch (s.kind) {
      case "has":
        return value !== undefined;
      case "equals":
        return value === s.value;
      case "notEquals":
        return value !== s.value;
      case "contains":
        return value !== undefined && value.indexOf(s.value) >= 0;
      case "startsWith":
        return value !== undefined && value.slice(0, s.value.length) === s.value;
      case "endsWith":
        return value !== undefined && (s.value === "" || value.slice(-s.value.length) === s.value);
      case "in":
        return s.values.some((one) => one === value);
      case "notIn":
        return !s.values.some((one) => one === value);
    }
  };
  switch (s.kind) {
    case "all":
    case "global":
      return true;
    case "not":
      return !interpretSelector(s.operand, labels);
    case "and":
      return s.operands.every((operand) => interpretSelector(operand, labels));
    case "or":
      return s.operands.some((operand) => interpretSelector(operand, labels));
    default:
      return test(s);
  }
}
