// Converts Kubernetes label selectors to the text of Calico selectors, with the same spelling as Calico.
import type { JsonReader } from "../../lib/encoding/json-reader.ts";
import { quote } from "../../lib/shorten.ts";
import { ORCHESTRATOR_LABEL } from "../labels.ts";
import { compareText } from "../selector/ast.ts";
import { NotConvertible } from "../validation/value-error.ts";

export const IS_KUBERNETES = `${ORCHESTRATOR_LABEL} == 'k8s'`;

/** Selects pods. An absent selector counts as empty, and selects all endpoints of Kubernetes. */
export function podSelectorText(selector: JsonReader | undefined): string {
  return [IS_KUBERNETES, ...terms(selector)].join(" && ");
}

/** Selects namespaces. An empty selector selects all of them. */
export function namespaceSelectorText(selector: JsonReader): string {
  const all = terms(selector);
  return all.length === 0 ? "all()" : all.join(" && ");
}

function terms(selector: JsonReader | undefined): readonly string[] {
  if (selector === undefined) return [];
  const labels = Object.entries(selector.map("matchLabels") ?? {}).sort(([a], [b]) => compareText(a, b));
  return [
    ...labels.map(([label, value]) => `${labelText(label)} == ${valueText(value)}`),
    ...selector.objects("matchExpressions").map(expressionText),
  ];
}

/** Rejects names with other characters, which could change the meaning of the selector's text. */
function labelText(label: string): string {
  if (/^[a-zA-Z0-9_./-]{1,512}$/.test(label)) return label;
  throw new NotConvertible(`${quote(label)} is not a label name`);
}

/** The selector language has no escapes, so a value cannot contain both kinds of quotes. */
export function valueText(value: string): string {
  if (!value.includes("'")) return `'${value}'`;
  if (!value.includes('"')) return `"${value}"`;
  throw new NotConvertible(`${quote(value)} is not a label value`);
}

function expressionText(expression: JsonReader): string {
  const key = labelText(expression.filled("key") ?? expression.fail("key", "a label name"));
  const values = () => `{ ${expression.texts("values").map(valueText).join(", ")} }`;
  switch (expression.text("operator")) {
    case "In":
      return `${key} in ${values()}`;
    case "NotIn":
      return `${key} not in ${values()}`;
    case "Exists":
      return `has(${key})`;
    case "DoesNotExist":
      return `! has(${key})`;
    default:
      return expression.fail("operator", "In, NotIn, Exists or DoesNotExist");
  }
}
