// Defines the kind KubeControllersConfiguration: the enabled controllers and their settings.
import {
  always,
  choice,
  duration,
  field,
  integer,
  labels,
  list,
  map,
  network,
  object,
  pointer,
  preset,
  regex,
  selector,
  subdomain,
  unserved,
} from "./fields.ts";
import { defineKind, type ResourceFor, type RuleContext } from "./kind.ts";
import { checkAnnotations } from "./policy-rule.ts";

const onOff = () => choice("Enabled", "Disabled");
const periodic = () => pointer(object({ reconcilerPeriod: pointer(duration()) }));
const template = object({
  generateName: field(subdomain()),
  interfaceCIDRs: field(list(network())),
  interfacePattern: field(regex()),
  labels: field(labels()),
  annotations: field(map()),
  nodeSelector: field(selector()),
});
const controllers = object({
  node: pointer(
    object({
      reconcilerPeriod: pointer(duration()),
      syncLabels: field(onOff()),
      hostEndpoint: pointer(
        object({
          autoCreate: field(onOff()),
          createDefaultHostEndpoint: field(onOff()),
          templates: field(list(template)),
        }),
      ),
      leakGracePeriod: unserved(preset(duration(), "15m0s")),
    }),
  ),
  policy: periodic(),
  workloadEndpoint: periodic(),
  serviceAccount: periodic(),
  namespace: periodic(),
  loadBalancer: pointer(object({ assignIPs: preset(choice("AllServices", "RequestedServicesOnly"), "AllServices") })),
  migration: pointer(object({ policyNameMigrator: preset(onOff(), "Enabled") })),
});
const port = () => integer(0, 65535, "want a port, 0 to 65535");

const spec = object({
  logSeverityScreen: field(choice("None", "Debug", "Info", "Warning", "Error", "Fatal", "Panic")),
  healthChecks: preset(onOff(), "Enabled"),
  etcdV3CompactionPeriod: pointer(duration()),
  prometheusMetricsPort: always(port(), 9094),
  controllers: always(controllers, {}),
  debugProfilePort: pointer(port()),
});
const status = object({ runningConfig: pointer(spec), environmentVars: field(map()) });
export type KubeControllersConfigurationResource = ResourceFor<
  "KubeControllersConfiguration",
  typeof spec,
  typeof status
>;

export default defineKind({
  kind: "KubeControllersConfiguration",
  description: "The enabled controllers of kube-controllers, and their settings.",
  spec,
  status,
  initialStatus: {},
  nameRule: (name) => (name === "default" ? undefined : "there is one, named default"),
  rules: (config, context) => {
    const templates = config.controllers.node?.hostEndpoint?.templates ?? [];
    const seen = new Set<string>();
    for (const [i, entry] of templates.entries()) {
      checkTemplate(entry, seen, ["controllers", "node", "hostEndpoint", "templates", i], context);
      if (entry.generateName !== undefined) seen.add(entry.generateName);
    }
  },
});

interface Template {
  readonly generateName?: string;
  readonly interfaceCIDRs?: readonly string[];
  readonly interfacePattern?: string;
  readonly annotations?: Readonly<Record<string, string>>;
}

function checkTemplate(
  entry: Template,
  seen: ReadonlySet<string>,
  at: readonly (string | number)[],
  { report }: RuleContext,
): void {
  if (entry.generateName === undefined)
    report([...at, "generateName"], undefined, "want a name, unique among the templates");
  else if (seen.has(entry.generateName))
    report([...at, "generateName"], entry.generateName, "is already used by another template");
  if (entry.interfaceCIDRs === undefined && entry.interfacePattern === undefined)
    report([...at, "interfaceCIDRs"], undefined, "interfaceCIDRs or interfacePattern is required");
  if (entry.annotations !== undefined) checkAnnotations(entry.annotations, [...at, "annotations"], report);
}
