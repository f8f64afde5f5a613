// Implements `calicoctl convert`, which converts resources of calicoctl v1 and Kubernetes network policies to v3 resources.
// The output is that of the last Calico release with this command: rules always have `source` and `destination`, and
// `creationTimestamp` is null.
import { type Resource, convertKubernetesPolicySpec } from "../../model/index.ts";
import type { Call } from "../table/flags.ts";
import type { convertGrammar } from "../table/resources.ts";
import { ConvertFault } from "../convert/fault.ts";
import { convertV1, isV1Kind, type V3Document } from "../convert/v1-resources.ts";
import { Failure } from "../command-line/failure.ts";
import { describePlace, type Place } from "../input/fault.ts";
import { readSources } from "../input/files.ts";
import { offsetOfField, toValue } from "../input/values.ts";
import { lineAt } from "../input/place.ts";
import { type MapNode, type Node, parseYaml } from "../input/yaml.ts";
import { toJson } from "../output/json.ts";
import { toYaml } from "../output/yaml.ts";

const KUBERNETES_VERSIONS = new Set(["networking.k8s.io/v1", "extensions/v1beta1"]);

export async function run(call: Call<typeof convertGrammar>): Promise<number> {
  const { flags, io } = call;
  const { filename } = flags;
  const print = printerFor(flags.output);
  const converted: V3Document[] = [];
  /** The original metadata of each converted resource, by its new kind, namespace and name. */
  const origins = new Map<string, string>();
  for (const { file, text } of readSources(filename, { recursive: false }, io))
    for (const { number, root } of parseYaml(text, file, io.err))
      for (const node of objectsOf(root)) {
        const place = (field?: string): Place => ({
          file,
          document: number,
          line: lineAt(text, field === undefined ? node.offset : offsetOfField(node, field)),
          field,
        });
        const document = convert(node, place, io.err);
        if (!flags["ignore-validation"]) await validate(document, place);
        const { name, namespace } = document.metadata;
        const key = JSON.stringify([document.kind, namespace, name]);
        const origin = JSON.stringify((toValue(node) as Record<string, unknown>)["metadata"]);
        // Converted names end in 32 bits of a hash, as in Calico.
        if ((origins.get(key) ?? origin) !== origin)
          throw failure(
            place("metadata.name"),
            `is converted to ${String(name)}, the same name as that of another ${document.kind}: rename one of them`,
          );
        origins.set(key, origin);
        converted.push(document);
      }
  if (converted.length === 0) throw new Failure(`No resources specified in file ${filename}`);
  io.out(print(converted.length === 1 ? converted[0] : listOf(converted)));
  return 0;
}

/** Several documents are printed as a Kubernetes List, which kubectl and calicoctl accept. */
const listOf = (items: readonly V3Document[]) => ({ kind: "List", apiVersion: "v1", metadata: {}, items });

function printerFor(format: string): (value: unknown) => string {
  if (format === "yaml" || format === "yml") return toYaml;
  if (format === "json") return toJson;
  throw new Failure(`unrecognized output format '${format}'; supported formats are yaml and json`);
}

function objectsOf(node: Node | undefined): MapNode[] {
  if (node?.kind === "list") return node.items.flatMap(objectsOf);
  return node?.kind === "map" ? [node] : [];
}

function convert(node: MapNode, place: (field?: string) => Place, warn: (text: string) => void): V3Document {
  const object = toValue(node) as Record<string, unknown>;
  const kind = String(object["kind"] ?? "");
  const version = String(object["apiVersion"] ?? "");
  if (version === "v1" && isV1Kind(kind))
    try {
      return convertV1(object);
    } catch (error) {
      if (!(error instanceof ConvertFault)) throw error;
      throw failure(place(error.field), error.reason);
    }
  if (KUBERNETES_VERSIONS.has(version) && kind === "NetworkPolicy")
    return convertKubernetes(object as unknown as Resource, (problem) =>
      warn(`Warning: ${describePlace(place())}: ${problem}\n`),
    );
  throw failure(place(), `Unknown resource type (${kind}) and/or version (${version})`);
}

function convertKubernetes(policy: Resource, report: (problem: string) => void): V3Document {
  const { tier: _, ingress, egress, ...spec } = convertKubernetesPolicySpec(policy.spec, report);
  const sides = (rules: readonly object[]) => rules.map((rule) => ({ source: {}, destination: {}, ...rule }));
  const { name, namespace } = policy.metadata;
  return {
    kind: "NetworkPolicy",
    apiVersion: "projectcalico.org/v3",
    metadata: { name, ...(namespace === undefined ? {} : { namespace }), creationTimestamp: null },
    spec: {
      ...spec,
      ...(ingress === undefined ? {} : { ingress: sides(ingress) }),
      ...(egress === undefined ? {} : { egress: sides(egress) }),
    },
  };
}

async function validate(document: V3Document, place: (field?: string) => Place): Promise<void> {
  const { loadSchemas } = await import("../../model/index.ts");
  const { validateResource } = await loadSchemas();
  const namespaced = document.kind === "NetworkPolicy" ? { namespace: "default" } : {};
  const metadata = { ...namespaced, ...document.metadata };
  const checked = await validateResource({ ...document, metadata } as unknown as Resource, { mode: "create" });
  if (checked.ok) return;
  const faults = checked.faults.map((fault) => `${fault.field}: ${fault.reason}`).join("; ");
  throw failure(place(), `${document.kind} ${String(document.metadata["name"])}: ${faults}`);
}

function failure(place: Place, reason: string): Failure {
  return new Failure(`Failed to create resources from file: ${describePlace(place)}: ${reason}`);
}
