import { expect, test } from "bun:test";
import { CRD_KINDS, customResourceDefinition } from "./crd.ts";

type Json = Record<string, unknown>;
const schemaOf = (definition: Json): Json => {
  const { versions } = definition["spec"] as { versions: { schema: { openAPIV3Schema: Json } }[] };
  return versions[0]!.schema.openAPIV3Schema;
};

/** Returns the paths at which a schema is not structural. */
function faultsIn(node: Json, path: string): string[] {
  const faults: string[] = [];
  const free = node["x-kubernetes-int-or-string"] === true || node["x-kubernetes-preserve-unknown-fields"] === true;
  if (typeof node["type"] !== "string" && !free) faults.push(`${path}: no type`);
  if (node["properties"] !== undefined && node["additionalProperties"] !== undefined)
    faults.push(`${path}: two kinds of map`);
  for (const word of ["oneOf", "allOf", "not", "$ref", "$defs", "const", "propertyNames", "$schema"])
    if (word in node) faults.push(`${path}: ${word}`);
  if ("anyOf" in node && !free) faults.push(`${path}: anyOf`);
  const properties = (node["properties"] ?? {}) as Record<string, Json>;
  for (const name of (node["required"] ?? []) as string[])
    if (!(name in properties)) faults.push(`${path}: requires ${name}`);
  for (const [name, inner] of Object.entries(properties)) faults.push(...faultsIn(inner, `${path}.${name}`));
  for (const word of ["items", "additionalProperties"])
    if (typeof node[word] === "object") faults.push(...faultsIn(node[word] as Json, `${path}[]`));
  return faults;
}

test("every definition has a structural schema", async () => {
  expect(CRD_KINDS.length).toBe(22);
  for (const kind of CRD_KINDS) expect(faultsIn(schemaOf(await customResourceDefinition(kind)), kind)).toEqual([]);
});

test("group, names and scope are those of the stored resources", async () => {
  const of = async (kind: (typeof CRD_KINDS)[number]) => (await customResourceDefinition(kind))["spec"] as Json;
  expect(await of("IPAMConfiguration")).toMatchObject({
    group: "crd.projectcalico.org",
    scope: "Cluster",
    names: { kind: "IPAMConfig", plural: "ipamconfigs", singular: "ipamconfig", listKind: "IPAMConfigList" },
  });
  expect(await of("NetworkPolicy")).toMatchObject({ scope: "Namespaced", names: { plural: "networkpolicies" } });
  for (const kind of CRD_KINDS) expect((await of(kind))["names"]).not.toHaveProperty("shortNames");
});

test("the field deleted of an affinity is text", async () => {
  const schema = schemaOf(await customResourceDefinition("BlockAffinity"));
  expect(schema).toMatchObject({ properties: { spec: { properties: { deleted: { type: "string" } } } } });
});
