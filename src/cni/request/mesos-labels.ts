// Labels that Mesos hands over in `args`, made fit to be labels.
import type { Labels } from "../../model/index.ts";
import type { NetConf } from "./net-conf.ts";

const NAMESPACE_LABEL = "projectcalico.org/namespace";

/** Labels of the task, and the namespace one of them may name. */
export function mesosLabels(conf: NetConf): { readonly labels: Labels; readonly namespace?: string } {
  const labels: Record<string, string> = {};
  let namespace: string | undefined;
  for (const { key, value } of conf.mesosLabels) {
    if (key === NAMESPACE_LABEL) namespace = sanitise(value);
    else labels[sanitise(key)] = sanitise(value);
  }
  return namespace === undefined ? { labels } : { labels, namespace };
}

/** `/` becomes a dot, other runs that may not stand there a dash; dots and dashes in a row shrink; ends are trimmed. */
function sanitise(text: string): string {
  return text
    .replaceAll("/", ".")
    .replaceAll(/[^-_.a-zA-Z0-9]+/g, "-")
    .replaceAll(/[-.]*\.[-.]*/g, ".")
    .replaceAll(/^[^a-zA-Z0-9]+|[^a-zA-Z0-9]+$/g, "");
}
