// Generates docs/reference/resources: one page for each kind of resource, from the zod schemas of src/model/kinds.
import { isManagedKind, kindAliases } from "../../src/calicoctl/resources/kinds.ts";
import { KINDS, type Kind, kindOf } from "../../src/model/kinds.ts";
import { describedSpec, describedStatus } from "../../src/model/kinds/crd.ts";
import { loadDefinition, SCHEMA_KINDS } from "../../src/model/validation/schemas.ts";
import type { SchemaKind } from "../../src/model/resources.ts";
import { code, table } from "./markdown.ts";

type Json = Readonly<Record<string, unknown>>;

const KUBERNETES_OBJECTS: Readonly<Partial<Record<SchemaKind, string>>> = {
  Node: "With the Kubernetes datastore, calico-ts reads and writes the Kubernetes Node.",
  WorkloadEndpoint: "With the Kubernetes datastore, calico-ts derives it from the Pod.",
  Profile: "With the Kubernetes datastore, calico-ts derives it from the Namespace or the ServiceAccount.",
};

const pageName = (kind: string): string => `${kind.toLowerCase()}.md`;

/** Pages by their file names. */
export async function resourcePages(): Promise<ReadonlyMap<string, string>> {
  const pages = new Map<string, string>();
  for (const name of SCHEMA_KINDS) pages.set(pageName(name), await resourcePage(name));
  pages.set("README.md", await indexPage());
  return pages;
}

async function indexPage(): Promise<string> {
  const rows = await Promise.all(
    KINDS.filter(({ name }) => SCHEMA_KINDS.includes(name as SchemaKind)).map(async (kind) => [
      `[${kind.name}](${pageName(kind.name)})`,
      calicoctlNames(kind.name).slice(1).map(code).join(", "),
      kind.namespaced ? "namespace" : "cluster",
      (await loadDefinition(kind.name as SchemaKind)).description,
    ]),
  );
  return `# Resources

\`make reference\` generates these pages from the schemas in \`src/model/kinds\`. Resources have \`apiVersion: projectcalico.org/v3\` for
\`calicoctl\`, and \`crd.projectcalico.org/v1\` for \`kubectl\` (IPAMConfiguration is called IPAMConfig there).

The short names are those of \`calicoctl\`; its help lists the most common ones. \`kubectl\` has no short names for these kinds, except
with the aggregated API server of Calico, which has its own; the page of each kind lists them.

${table(["Kind", "Short names of `calicoctl`", "Scope", "Meaning"], rows)}
`;
}

async function resourcePage(name: SchemaKind): Promise<string> {
  const kind = kindOf(name);
  const { description } = await loadDefinition(name);
  const status = await describedStatus(name);
  const note = KUBERNETES_OBJECTS[name];
  const isFelix = name === "FelixConfiguration";
  return `${[
    `# ${name}`,
    description,
    ...(note === undefined ? [] : [note]),
    ...(isFelix ? ["[Felix configuration](../felix-configuration.md) lists the same settings with their effect."] : []),
    summary(kind),
    "## Spec",
    fieldTable(await describedSpec(name, "all")),
    ...(status === undefined ? [] : ["## Status", "Programs write the status; users do not.", fieldTable(status)]),
  ].join("\n\n")}\n`;
}

function summary({ name, shortNames, namespaced }: Kind): string {
  const names = calicoctlNames(name);
  const list = (texts: readonly string[]) => texts.map(code).join(", ");
  return [
    `Scope: ${namespaced ? "namespace" : "cluster"}.`,
    names.length === 0
      ? "`calicoctl get` does not show this kind; `calicoctl ipam` does."
      : `Names for \`calicoctl get\`: ${list(names)}.`,
    ...(shortNames.length === 0
      ? []
      : [`Short names for \`kubectl\` with the aggregated API server of Calico: ${list(shortNames)}.`]),
  ].join(" ");
}

/** The plural and the short names that calicoctl accepts; none for the kinds of IPAM. */
const calicoctlNames = (kind: string): readonly string[] => (isManagedKind(kind) ? kindAliases(kind) : []);

function fieldTable(schema: Json): string {
  return table(["Field", "Type", "Default", "Meaning"], [...fields(schema, "")]);
}

function* fields(schema: Json, prefix: string): Iterable<readonly string[]> {
  const inner = schema["type"] === "array" ? (schema["items"] as Json) : schema;
  const required = new Set((inner["required"] ?? []) as readonly string[]);
  for (const [name, field] of Object.entries((inner["properties"] ?? {}) as Record<string, Json>)) {
    const path = `${prefix}${name}`;
    const isList = field["type"] === "array";
    yield [
      code(isList && hasFields(field) ? `${path}[]` : path),
      `${typeName(field)}${required.has(name) ? ", required" : ""}`,
      field["default"] === undefined ? "" : code(JSON.stringify(field["default"])),
      `${String(field["description"] ?? "")}${limits(field)}`,
    ];
    yield* fields(field, isList ? `${path}[].` : `${path}.`);
  }
}

const hasFields = (field: Json): boolean => (field["items"] as Json | undefined)?.["properties"] !== undefined;

function typeName(field: Json): string {
  if (field["x-kubernetes-int-or-string"] === true) return "integer or string";
  const values = field["enum"] as readonly unknown[] | undefined;
  if (values !== undefined) return values.map((value) => code(String(value))).join(", ");
  switch (field["type"]) {
    case "array":
      return `list of ${hasFields(field) ? "objects" : typeName(field["items"] as Json)}`;
    case "object": {
      const of = field["additionalProperties"] as Json | undefined;
      return of === undefined ? "object" : `map of string to ${typeName(of)}`;
    }
    case undefined:
      return "any";
    default:
      return String(field["type"]);
  }
}

function limits(field: Json): string {
  const { minimum, maximum, maxLength, maxItems } = field as Readonly<Record<string, number | undefined>>;
  const parts = [
    ...(minimum === undefined && maximum === undefined ? [] : [range(minimum, maximum)]),
    ...(maxLength === undefined ? [] : [`At most ${maxLength} characters.`]),
    ...(maxItems === undefined ? [] : [`At most ${maxItems} items.`]),
  ];
  return parts.map((part) => ` ${part}`).join("");
}

function range(minimum: number | undefined, maximum: number | undefined): string {
  if (minimum === undefined) return `At most ${maximum}.`;
  return maximum === undefined ? `At least ${minimum}.` : `${minimum} to ${maximum}.`;
}
