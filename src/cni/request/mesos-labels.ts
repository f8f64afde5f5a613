// Converts the labels that Mesos passes in `args` to valid label keys and values.
import type { Labels } from "../../model/index.ts";
import type { NetConf } from "./net-conf.ts";

const NAMESPACE_LABEL = "projectcalico.org/namespace";

/** Returns the labels of the task, and the namespace if one of the labels sets it. */
export function mesosLabels(conf: NetConf): { readonly labels: Labels; readonly namespace?: string } {
  const labels: Record<string, string> = {};
  let namespace: string | undefined;
  for (const { key, value } of conf.mesosLabels) {
    if (key === NAMESPACE_LABEL) namespace = sanitise(value);
    else labels[sanitise(key)] = sanitise(value);
  }
  return namespace === undefined ? { labels } : { labels, namespace };
}

/** Replaces `/` by a dot and other invalid characters by a dash, merges dots and dashes around a dot, and trims both ends. */
function sanitise(text: string): string {
  return text
    .replaceAll("/", ".")
    .replaceAll(/[^-_.a-zA-Z0-9]+/g, "-")
    .replaceAll(/[-.]*\.[-.]*/g, ".")
    .replaceAll(/^[^a-zA-Z0-9]+|[^a-zA-Z0-9]+$/g, "");
}
