// Implements `calicoctl label`, which sets, changes or removes one label of a resource.
import { type Client, Conflict, NotFound } from "../../datastore/index.ts";
import type { Labels, Resource } from "../../model/index.ts";
import { nameOf, resolveNamespace } from "../resources/actions.ts";
import { openChecked } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { labelGrammar } from "../table/resources.ts";
import { Failure } from "../command-line/failure.ts";
import { describe } from "../resources/results.ts";
import { kindFromWord, namedResource, UnknownKind } from "../command-line/named-resources.ts";

const MAX_ATTEMPTS = 5;
const KUBE_LABELS = "projectcalico.org/kube-labels";

export async function run(call: Call<typeof labelGrammar>): Promise<number> {
  const { KIND: word, NAME: name, LABEL: label } = call.args;
  const remove = call.flags.remove;
  const change = remove ? { key: label, value: undefined } : parseLabel(label);
  const target = targetOf(call, word, name);
  await using store = await openChecked(call);
  let existing: string | undefined;
  for (let attempt = 1; ; attempt++) {
    const current = await find(store, target, word, name);
    const labels = current.metadata.labels ?? {};
    existing = labels[change.key];
    if (isKubernetesLabel(current, change.key))
      throw new Failure(
        `label ${change.key} of ${word} ${name} is a label of the Kubernetes node and cannot be changed here; use kubectl label node`,
      );
    if (remove && existing === undefined)
      throw new Failure(`cannot remove label of ${word} ${name}, key ${change.key} does not exist`);
    if (!remove && existing !== undefined && existing !== change.value && !call.flags.overwrite)
      throw new Failure(
        `failed to update label of ${word} ${name}, key ${change.key} is already present; use --overwrite to replace ${existing}`,
      );
    try {
      await store.replace(withLabels(current, changed(labels, change)));
      break;
    } catch (error) {
      if (error instanceof Conflict && attempt < MAX_ATTEMPTS) continue; // the resource was changed meanwhile: read it again
      throw new Failure(`failed to update ${word} ${name}, label not changed: ${describe(error)}`, { cause: error });
    }
  }
  const how = remove ? "removed" : existing === undefined ? "set" : "updated";
  call.io.out(`Successfully ${how} label ${change.key} ${remove ? "from" : "on"} ${word} ${name}\n`);
  return 0;
}

function parseLabel(text: string): { key: string; value: string } {
  const [key = "", value, ...more] = text.split("=");
  if (value === undefined || key === "" || more.length > 0)
    throw new Failure(`invalid label ${text}: want <key>=<value>, or <key> with --remove`);
  return { key, value };
}

function targetOf(call: Call<typeof labelGrammar>, word: string, name: string): Resource {
  try {
    const kind = kindFromWord(word);
    return resolveNamespace({ kind, resource: namedResource(kind, name) }, call.flags);
  } catch (error) {
    if (!(error instanceof UnknownKind)) throw error;
    throw new Failure(`failed to get ${word} ${name}, error ${error.message}`, { cause: error });
  }
}

async function find(store: Client, target: Resource, word: string, name: string): Promise<Resource> {
  try {
    return await store.get(nameOf(target));
  } catch (error) {
    if (error instanceof NotFound) throw new Failure(`${word} ${name} not found`, { cause: error });
    throw new Failure(`failed to get ${word} ${name}, error ${describe(error)}`, { cause: error });
  }
}

/** Whether the label was copied from the Kubernetes node, as recorded in an annotation. Changes to it would be overwritten. */
function isKubernetesLabel({ kind, metadata }: Resource, key: string): boolean {
  const text = kind === "Node" ? metadata.annotations?.[KUBE_LABELS] : undefined;
  if (text === undefined) return false;
  try {
    const recorded: unknown = JSON.parse(text);
    return typeof recorded === "object" && recorded !== null && Object.hasOwn(recorded, key);
  } catch {
    return false;
  }
}

function changed(labels: Labels, change: { key: string; value: string | undefined }): Labels | undefined {
  const { [change.key]: _, ...others } = labels;
  const result = change.value === undefined ? others : { ...others, [change.key]: change.value };
  return Object.keys(result).length === 0 ? undefined : result;
}

function withLabels(resource: Resource, labels: Labels | undefined): Resource {
  const { labels: _, ...metadata } = resource.metadata;
  return { ...resource, metadata: labels === undefined ? metadata : { ...metadata, labels } };
}
