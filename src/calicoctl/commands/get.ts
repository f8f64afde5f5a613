// Implements `calicoctl get`, which shows all resources of a kind, some by name, or those that files name.
import { type Client, NotFound } from "../../datastore/index.ts";
import { ignoreUnreadable, readBgpConfiguration, type Resource, sortRows } from "../../model/index.ts";
import { nameOf, resolveNamespace } from "../resources/actions.ts";
import { optionsFor, openChecked } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { getGrammar } from "../table/resources.ts";
import { Failure } from "../command-line/failure.ts";
import { readResources } from "../input/resources.ts";
import { isNamespaced, type ManagedKind } from "../resources/kinds.ts";
import { DEFAULT_NAMESPACE, NamespaceFault } from "../resources/namespaces.ts";
import { type Found, parseFormat, print } from "../output/print.ts";
import { describe } from "../resources/results.ts";
import { emphasis } from "../command-line/terminal.ts";
import { kindFromWord, type NamedResource, resourcesFromWords, UnknownKind } from "../command-line/named-resources.ts";

export async function run(call: Call<typeof getGrammar>): Promise<number> {
  const { flags, io } = call;
  const all = flags["all-namespaces"];
  if (all && flags.namespace !== undefined)
    throw new Failure("cannot use both --namespace and --all-namespaces flags at the same time");
  const format = parseFormat(flags.output);
  const { listed, named } = await targetsOf(call);
  if (all && named.length > 0 && flags.filename === undefined)
    throw new Failure("cannot use --all-namespace flag for getting a single resource");

  await using store = await openChecked(call, listed === undefined ? optionsFor(named.length) : { requests: "many" });
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

  // If nothing was found because of errors, YAML and JSON are an empty document; a table is not printed.
  if (found.length > 0 || faults.length === 0 || format.type === "yaml" || format.type === "json") {
    io.out(
      await print(listed === undefined || faults.length === 0 ? found : [], format, {
        showNamespace: all || (flags.namespace ?? "") !== "",
        defaultAsNumber: () => defaultAsNumber(store),
        emphasize: emphasis(io),
        onUnreadable: (answer, { message }) =>
          answer === "one" ? void faults.push(message) : io.err(`Skipped: ${message}\n`),
      }),
    );
  }
  for (const fault of faults) io.err(`${fault}\n`);
  return faults.length === 0 ? 0 : 1;
}

async function targetsOf(
  call: Call<typeof getGrammar>,
): Promise<{ listed: ManagedKind | undefined; named: readonly NamedResource[] }> {
  if (call.flags.filename !== undefined) return { listed: undefined, named: await readResources(call) };
  try {
    const named = resourcesFromWords(call.args, { atLeastOne: false });
    return { named, listed: named.length === 0 ? kindFromWord(call.args.KIND ?? "") : undefined };
  } catch (error) {
    if (error instanceof UnknownKind) throw new Failure(`Failed to get resources: ${error.message}`, { cause: error });
    throw error;
  }
}

async function list(store: Client, kind: ManagedKind, call: Call<typeof getGrammar>): Promise<Found> {
  const { flags } = call;
  if (!isNamespaced(kind)) {
    if (flags.namespace !== undefined || flags["all-namespaces"]) throw new NamespaceFault(`${kind} is not namespaced`);
    const all = await store.list({ kind });
    return { type: "list", kind, list: { ...all, items: sortRows(kind, all.items) } };
  }
  const namespace = flags["all-namespaces"] ? undefined : flags.namespace || DEFAULT_NAMESPACE;
  return { type: "list", kind, list: await store.list(namespace === undefined ? { kind } : { kind, namespace }) };
}

async function getOne(store: Client, target: NamedResource, call: Call<typeof getGrammar>): Promise<Found> {
  const resource = await store.get(nameOf(resolveNamespace(target, call.flags)));
  return { type: "one", kind: target.kind, resource: call.flags.export ? exported(resource) : resource };
}

/** Removes the metadata that is specific to this cluster. */
function exported(resource: Resource): Resource {
  const { namespace, uid, resourceVersion, creationTimestamp, deletionTimestamp, generation, ...kept } =
    resource.metadata;
  void [namespace, uid, resourceVersion, creationTimestamp, deletionTimestamp, generation];
  return { ...resource, metadata: kept };
}

/** Returns the AS number of nodes that do not set one. */
async function defaultAsNumber(store: Client): Promise<number | "unknown"> {
  try {
    const configuration = await store.get({ kind: "BGPConfiguration", name: "default" });
    return readBgpConfiguration(configuration, ignoreUnreadable).asNumber ?? 64512;
  } catch (error) {
    return error instanceof NotFound ? 64512 : "unknown";
  }
}
