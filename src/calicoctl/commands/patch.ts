// Implements `calicoctl patch`, which changes some fields of one resource by a strategic merge. As in Calico, `--type` has no
// effect.
import { Conflict } from "../../datastore/index.ts";
import { loadSchemas, type Resource } from "../../model/index.ts";
import { nameOf, resolveNamespace } from "../resources/actions.ts";
import { openChecked } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { patchGrammar } from "../table/resources.ts";
import { Failure } from "../command-line/failure.ts";
import { rejectReadOnly } from "../resources/guards.ts";
import { InputFault } from "../input/fault.ts";
import { type Document, type Node, parseYaml, type ScalarNode } from "../input/yaml.ts";
import { isPatch, strategicMerge } from "../resources/patch.ts";
import { describe } from "../resources/results.ts";
import { warnOfWritten } from "../resources/write-warnings.ts";
import { kindFromWord, namedResource } from "../command-line/named-resources.ts";

const MAX_ATTEMPTS = 5;

export async function run(call: Call<typeof patchGrammar>): Promise<number> {
  const { KIND: word, NAME: name } = call.args;
  const kind = kindFromWord(word);
  const patch = parsePatch(call.flags.patch);
  await using store = await openChecked(call);
  try {
    const target = nameOf(resolveNamespace({ kind, resource: namedResource(kind, name) }, call.flags));
    rejectReadOnly(target, "replace");
    const schema = await (await loadSchemas()).loadSchema(kind);
    const isTiedToRevision = isPatch(patch["metadata"]) && patch["metadata"]["resourceVersion"] !== undefined;
    for (let attempt = 1; ; attempt++) {
      const current = await store.get(target);
      const patched = strategicMerge(current, patch) as Resource;
      const decoded = schema.decode(patched, { stored: current });
      if (!decoded.ok)
        throw new Failure(`--patch: ${decoded.faults.map((fault) => `${fault.field}: ${fault.reason}`).join("; ")}`);
      rejectOtherIdentity(current, patched);
      try {
        await warnOfWritten(call.io, store, [await store.replace(decoded.resource)]);
        break;
      } catch (error) {
        // The resource was changed meanwhile: apply the patch to its current version.
        if (!(error instanceof Conflict) || isTiedToRevision || attempt >= MAX_ATTEMPTS) throw error;
      }
    }
  } catch (error) {
    throw new Failure(`Hit error: ${describe(error)}`, { cause: error });
  }
  call.io.out(`Successfully patched 1 '${kind}' resource\n`);
  return 0;
}

function rejectOtherIdentity(current: Resource, patched: Resource): void {
  const identity = ({ apiVersion, kind, metadata }: Resource) =>
    ({ apiVersion, kind, "metadata.name": metadata?.name, "metadata.namespace": metadata?.namespace }) as const;
  const [before, after] = [identity(current), identity(patched)];
  for (const field of ["apiVersion", "kind", "metadata.name", "metadata.namespace"] as const)
    if (before[field] !== after[field])
      throw new Failure(`--patch: ${field}: cannot be changed; create another resource and delete this one`);
}

function parsePatch(text: string): Readonly<Record<string, unknown>> {
  const expected = `want a JSON object such as {"spec": {"natOutgoing": true}}`;
  try {
    const patch: unknown = JSON.parse(text);
    rejectAmbiguous(text);
    if (isPatch(patch)) return patch;
  } catch (error) {
    if (error instanceof InputFault) throw new Failure(`Hit error: --patch: ${error.reason}`, { cause: error });
    const reason = error instanceof Error ? error.message : String(error);
    throw new Failure(`Hit error: --patch is not JSON: ${reason}; ${expected}`, { cause: error });
  }
  throw new Failure(`Hit error: --patch: ${expected}`);
}

/** Rejects duplicate keys, of which JSON.parse keeps the last, and numbers that it would round. */
function rejectAmbiguous(text: string): void {
  for (const { root } of documentsOf(text))
    if (root !== undefined)
      for (const { value } of scalarsOf(root))
        if (typeof value === "bigint")
          throw new InputFault({ file: "--patch" }, `${value} has more digits than a number can represent`);
}

function documentsOf(text: string): readonly Document[] {
  try {
    return parseYaml(text, "--patch", () => {});
  } catch (error) {
    if (error instanceof InputFault && error.reason.startsWith("not YAML")) return []; // valid JSON that the YAML parser does not accept
    throw error;
  }
}

function* scalarsOf(node: Node): Generator<ScalarNode> {
  if (node.kind === "scalar") yield node;
  else if (node.kind === "list") for (const item of node.items) yield* scalarsOf(item);
  else for (const { node: child } of node.entries.values()) yield* scalarsOf(child);
}
