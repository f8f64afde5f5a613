// Reads the resources in the files of a command. All of them are read and decoded before the first is returned, so that
// nothing is written if one document is invalid.
import { nearest } from "../../lib/nearest-name.ts";
import { API_VERSION, describeValue, type FieldFault, loadSchemas, type Resource } from "../../model/index.ts";
import type { InputCall } from "../table/flags.ts";
import { UsageError } from "../../lib/command-line/usage-error.ts";
import { Failure } from "../command-line/failure.ts";
import { isManagedKind, MANAGED_KINDS, type ManagedKind } from "../resources/kinds.ts";
import { describePlace, InputFault, type Place } from "./fault.ts";
import { readSources, type Source } from "./files.ts";
import { offsetOfField, recoverWrittenText, toValue } from "./values.ts";
import { lineAt } from "./place.ts";
import { type MapNode, type Node, parseYaml, type Warn } from "./yaml.ts";

export interface InputResource {
  readonly kind: ManagedKind;
  readonly resource: Resource;
  readonly origin: Origin;
}

/** Returns the place of a resource or of one of its fields in the input. */
export interface Origin {
  place(field?: string): Place;
}

/** @throws InputFault, or Failure if there are no resources */
export async function readResources(call: InputCall): Promise<InputResource[]> {
  const filename = call.flags.filename;
  if (filename === undefined) throw new UsageError("--filename is missing");
  const sources = readSources(filename, { recursive: call.flags.recursive }, call.io);
  const skipEmpty = call.flags["skip-empty"];
  if (sources.length === 0 && !skipEmpty) throw new Failure(`No resources specified in directory ${filename}`);
  const resources: InputResource[] = [];
  for (const source of sources) {
    const found = await parseResources(source, call.io.err);
    if (found.length === 0 && !skipEmpty) throw new Failure(`No resources specified in file ${source.file}`);
    resources.push(...found);
  }
  return resources;
}

/** Parses all resources of one file. */
export async function parseResources(source: Source, warn: Warn): Promise<InputResource[]> {
  const found: InputResource[] = [];
  for (const { number, root } of parseYaml(source.text, source.file, warn)) {
    if (root === undefined || (root.kind === "scalar" && root.value === null)) continue;
    for (const node of objectsOf(source, number, root)) found.push(await decode(source, number, node));
  }
  return found;
}

/** Returns the resources of a document, which is a resource, a YAML list, or a typed list such as an IPPoolList. */
export function objectsOf(source: Source, document: number, root: Node): MapNode[] {
  if (root.kind === "scalar")
    throw new InputFault(
      placeOf(source, document, root.offset),
      "want a resource or a list of resources, not a single word",
    );
  if (root.kind === "list")
    return root.items.flatMap((item) => {
      if (item.kind === "map") return objectsOf(source, document, item);
      throw new InputFault(placeOf(source, document, item.offset), "want a resource in the list");
    });
  const { kind, apiVersion } = identityOf(root);
  const item = kind.endsWith("List") && apiVersion === API_VERSION ? kind.slice(0, -"List".length) : undefined;
  if (item === undefined || !isManagedKind(item)) return [root];
  const items = root.entries.get("items")?.node;
  if (items === undefined) return [];
  if (items.kind !== "list")
    throw new InputFault({ ...placeOf(source, document, items.offset), field: "items" }, "want a list");
  return items.items.map((node) => {
    if (node.kind !== "map")
      throw new InputFault(placeOf(source, document, node.offset), `want a resource of kind ${item}`);
    const own = identityOf(node).kind;
    if (own !== "" && own !== item)
      throw new InputFault(placeOf(source, document, node.offset), `want a resource of kind ${item}, not ${own}`);
    return withIdentity(node, item);
  });
}

/** Adds `kind` and `apiVersion` to an item of a typed list, which may omit them. */
function withIdentity(node: MapNode, kind: string): MapNode {
  const entries = new Map(node.entries);
  const add = (key: string, text: string) => {
    if (!entries.has(key))
      entries.set(key, {
        offset: node.offset,
        node: { kind: "scalar", offset: node.offset, text, value: text, plain: false },
      });
  };
  add("kind", kind);
  add("apiVersion", API_VERSION);
  return { ...node, entries };
}

export async function decode(source: Source, document: number, node: MapNode): Promise<InputResource> {
  const { kind, apiVersion } = identityOf(node);
  const origin: Origin = {
    place: (field) => ({
      ...placeOf(source, document, field === undefined ? node.offset : offsetOfField(node, field)),
      field,
    }),
  };
  if (apiVersion !== API_VERSION || !isManagedKind(kind))
    throw new InputFault(
      origin.place(apiVersion === API_VERSION ? "kind" : "apiVersion"),
      `Unknown resource type (${kind}) and/or version (${apiVersion})${identityHint(kind, apiVersion)}`,
    );
  const { loadSchema } = await loadSchemas();
  const schema = await loadSchema(kind);
  const decoded = recoverWrittenText(node, toValue(node), (value) => schema.decode(value));
  if (!decoded.ok) throw structureFault(origin, decoded.faults);
  return { kind, resource: decoded.resource, origin };
}

function identityHint(kind: string, apiVersion: string): string {
  if (/^(networking\.k8s\.io|policy\.networking\.k8s\.io)\//.test(apiVersion))
    return `: this is a Kubernetes resource; apply it with kubectl, or convert it to ${API_VERSION} with calicoctl convert`;
  if (apiVersion.startsWith("crd.projectcalico.org/"))
    return `: this is the version in which the Kubernetes API stores the resource; calicoctl uses apiVersion ${API_VERSION}`;
  if (apiVersion !== API_VERSION) return `: want apiVersion ${API_VERSION}`;
  const near = nearest(kind, MANAGED_KINDS);
  return near === undefined ? "" : `: did you mean ${near}?`;
}

/** Reports the first fault and the number of others in one line. */
function structureFault(origin: Origin, faults: readonly FieldFault[]): InputFault {
  const [first] = faults;
  if (first === undefined) return new InputFault(origin.place(), "cannot be read");
  const showsValue = first.value !== undefined && first.reason.startsWith("want");
  const value = showsValue ? ` (is ${quoted(first.value)})` : "";
  const more = faults.length > 1 ? `; and ${faults.length - 1} more` : "";
  return new InputFault(origin.place(first.field), `${first.reason}${value}${more}`);
}

/** Puts text in quotes, to distinguish `"5"` from `5`. */
const quoted = (value: unknown): string =>
  typeof value === "string" ? JSON.stringify(describeValue(value)) : describeValue(value);

/** Further faults are only counted, to keep the line short. */
const MAX_FAULTS = 10;

/** Describes faults that validation found later, with the lines of their fields. */
export function describeFaults(origin: Origin, faults: readonly FieldFault[]): string {
  const described = faults.slice(0, MAX_FAULTS).map(({ field, value, reason }) => {
    const shown = value === undefined ? "" : ` = '${describeValue(value)}'`;
    return `${describePlace(origin.place(field))}${shown} (${reason})`;
  });
  const more = faults.length - described.length;
  return [...described, ...(more > 0 ? [`and ${more} more`] : [])].join("; ");
}

export function identityOf(node: MapNode): { kind: string; apiVersion: string } {
  const text = (key: string) => {
    const found = node.entries.get(key)?.node;
    return found?.kind === "scalar" ? found.text : "";
  };
  return { kind: text("kind"), apiVersion: text("apiVersion") };
}

function placeOf(source: Source, document: number, offset: number): Place {
  return { file: source.file, document, line: lineAt(source.text, offset) };
}
