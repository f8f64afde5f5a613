// calicoctl get: all resources of a kind, some by name, or those that files name.
import { type Client, NotFound } from "../../datastore/index.ts";
import { type Resource, sortRows } from "../../model/index.ts";
import { nameOf, settle } from "../actions.ts";
import { demandOf, openChecked } from "../client.ts";
import type { Call } from "../command.ts";
import { Failure } from "../failure.ts";
import { readResources } from "../input/resources.ts";
import { isNamespaced, type ManagedKind } from "../kinds.ts";
import { DEFAULT_NAMESPACE, NamespaceFault } from "../namespaces.ts";
import { type Found, parseFormat, print } from "../output/print.ts";
import { describe } from "../results.ts";
import { emphasis } from "../terminal.ts";
import { kindFromWord, type NamedResource, resourcesFromWords, UnknownKind } from "../words.ts";

export async function run(call: Call): Promise<number> {
  const { flags, world } = call;
  const all = flags.has("all-namespaces");
  if (all && flags.has("namespace"))
    throw new Failure("cannot use both --namespace and --all-namespaces flags at the same time");
  const format = parseFormat(flags.value("output") ?? "ps");
  const { listed, named } = await targetsOf(call);
  if (all && named.length > 0 && !flags.has("filename"))
    throw new Failure("cannot use --all-namespace flag for getting a single resource");

  await using store = await openChecked(call, listed === undefined ? demandOf(named.length) : { requests: "many" });
  const found: Found[] = [];
  const faults: string[] = [];
  const attempt = async (what: () => Promise<Found>) => {
    try {
      found.push(await what());
    } catch (error) {
      faults.push(describe(error));
    }
  };
  if (listed !== undefined) await attempt(() => list(store, listed, call));
  for (const target of named) await attempt(() => getOne(store, target, call));

  // Nothing was found and something went wrong: an empty document says so to readers of YAML, tables say nothing.
  if (found.length > 0 || faults.length === 0 || format.type === "yaml" || format.type === "json") {
    world.out(
      await print(listed === undefined || faults.length === 0 ? found : [], format, {
        showNamespace: all || (flags.value("namespace") ?? "") !== "",
        defaultAsNumber: () => defaultAsNumber(store),
        emphasize: emphasis(world),
        onUnreadable: (answer, { message }) =>
          answer === "one" ? void faults.push(message) : world.err(`Skipped: ${message}\n`),
      }),
    );
  }
  for (const fault of faults) world.err(`${fault}\n`);
  return faults.length === 0 ? 0 : 1;
}

async function targetsOf(call: Call): Promise<{ listed: ManagedKind | undefined; named: readonly NamedResource[] }> {
  if (call.flags.has("filename")) return { listed: undefined, named: await readResources(call) };
  try {
    const named = resourcesFromWords(call, { atLeastOne: false });
    return { named, listed: named.length === 0 ? kindFromWord(call.words[0] ?? "") : undefined };
  } catch (error) {
    if (error instanceof UnknownKind) throw new Failure(`Failed to get resources: ${error.message}`, { cause: error });
    throw error;
  }
}

async function list(store: Client, kind: ManagedKind, call: Call): Promise<Found> {
  const { flags } = call;
  if (!isNamespaced(kind)) {
    if (flags.has("namespace") || flags.has("all-namespaces")) throw new NamespaceFault(`${kind} is not namespaced`);
    const all = await store.list({ kind });
    return { type: "list", kind, list: { ...all, items: sortRows(kind, all.items) } };
  }
  const namespace = flags.has("all-namespaces") ? undefined : flags.value("namespace") || DEFAULT_NAMESPACE;
  return { type: "list", kind, list: await store.list(namespace === undefined ? { kind } : { kind, namespace }) };
}

async function getOne(store: Client, target: NamedResource, call: Call): Promise<Found> {
  const resource = await store.get(nameOf(settle(target, call.flags)));
  return { type: "one", kind: target.kind, resource: call.flags.has("export") ? exported(resource) : resource };
}

/** Without what belongs to this cluster only. */
function exported(resource: Resource): Resource {
  const { namespace, uid, resourceVersion, creationTimestamp, deletionTimestamp, generation, ...kept } =
    resource.metadata;
  void [namespace, uid, resourceVersion, creationTimestamp, deletionTimestamp, generation];
  return { ...resource, metadata: kept };
}

/** What nodes without an AS number of their own have. */
async function defaultAsNumber(store: Client): Promise<number | "unknown"> {
  try {
    const { spec } = await store.get({ kind: "BGPConfiguration", name: "default" });
    return (spec as { readonly asNumber?: number }).asNumber ?? 64512;
  } catch (error) {
    return error instanceof NotFound ? 64512 : "unknown";
  }
}
