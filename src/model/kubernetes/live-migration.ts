// Converts KubeVirt's VirtualMachineInstanceMigration to a LiveMigration.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { NAMESPACE_LABEL } from "../labels.ts";
import { API_VERSION, type Resource } from "../resource.ts";
import { valueText } from "./label-selector.ts";
import { namesOf, originOf } from "./metadata.ts";

const PHASES: ReadonlySet<string> = new Set([
  "Scheduling",
  "Scheduled",
  "PreparingTarget",
  "TargetReady",
  "Running",
  "Failed",
]);
/** Labels of the virtual machine's pods: the machine's name, and on the target pod also the UID of the migration. */
const MACHINE_LABEL = "vmi.kubevirt.io/id";
const MIGRATION_LABEL = "kubevirt.io/migrationJobUID";

export interface LiveMigrationSpec {
  readonly source?: { readonly workload: { readonly orchestratorID: "k8s"; readonly workloadID: string } };
  readonly target: { readonly selector: string };
}

/** Returns undefined for a migration that has not started or has ended. */
export function liveMigrationFromKubeVirt(json: unknown): Resource<"LiveMigration", LiveMigrationSpec> | undefined {
  const object = new JsonReader(json);
  const status = object.object("status");
  if (!PHASES.has(status?.text("phase") ?? "")) return undefined;
  const { name, namespace, labels, annotations } = namesOf(object);
  const origin = originOf(object, "same");
  const machine = object.object("spec")?.filled("vmiName") ?? object.fail("spec.vmiName", "the virtual machine's name");
  const source = status?.object("migrationState")?.filled("sourcePod");
  return {
    apiVersion: API_VERSION,
    kind: "LiveMigration",
    metadata: {
      ...origin,
      name,
      namespace,
      ...(Object.keys(labels).length === 0 ? {} : { labels }),
      ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
    },
    spec: {
      ...(source === undefined
        ? {}
        : { source: { workload: { orchestratorID: "k8s", workloadID: `${namespace}/${source}` } } }),
      target: {
        selector: [
          [NAMESPACE_LABEL, namespace],
          [MACHINE_LABEL, machine],
          [MIGRATION_LABEL, origin.uid ?? ""],
        ]
          .map(([label, value = ""]) => `${label} == ${valueText(value)}`)
          .join(" && "),
      },
    },
  };
}
