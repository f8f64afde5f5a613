// What runs, and how: the environment over the KubeControllersConfiguration over the defaults. Pure; also says what the
// resource's status is to show.
import { formatDuration, parseDuration, type SpecOf } from "../model/index.ts";
import { type ControllerName, type EnvironmentSettings, type LogSeverity } from "./environment.ts";

export type ConfigurationSpec = SpecOf<"KubeControllersConfiguration">;
type NodeSection = NonNullable<ConfigurationSpec["controllers"]["node"]>;
export type HostEndpointSettings = NonNullable<NodeSection["hostEndpoint"]>;
export type HostEndpointTemplate = NonNullable<HostEndpointSettings["templates"]>[number];

export interface RunningConfig {
  readonly logSeverity: LogSeverity;
  readonly healthChecks: boolean;
  /** 0 = never. */
  readonly compactionPeriodMs: number;
  /** 0 = no metrics. */
  readonly metricsPort: number;
  readonly node?: {
    readonly syncLabels: boolean;
    readonly hostEndpoints: HostEndpointSettings;
    /** Undefined = addresses are not collected; 0 = leaks are seen but never released. */
    readonly leakGraceMs?: number;
  };
  /** Undefined = does not run; without a period nothing is looked at again. */
  readonly policy?: Periodic;
  readonly workloadEndpoint?: Periodic;
  readonly serviceAccount?: Periodic;
  readonly namespace?: Periodic;
  readonly loadBalancer?: { readonly assignIPs: "AllServices" | "RequestedServicesOnly" };
  readonly policyNameMigrator: boolean;
}
interface Periodic {
  readonly reconcilerPeriodMs?: number;
}

export interface ConfigurationStatus {
  readonly runningConfig: object;
  readonly environmentVars?: Readonly<Record<string, string>>;
}

/** What a cluster gets that has none. */
export const DEFAULT_SPEC = {
  logSeverityScreen: "Info",
  healthChecks: "Enabled",
  etcdV3CompactionPeriod: "10m0s",
  prometheusMetricsPort: 9094,
  controllers: {
    node: {
      reconcilerPeriod: "5m0s",
      syncLabels: "Enabled",
      hostEndpoint: { autoCreate: "Disabled", createDefaultHostEndpoint: "Enabled" },
      leakGracePeriod: "15m0s",
    },
    policy: { reconcilerPeriod: "5m0s" },
    workloadEndpoint: { reconcilerPeriod: "5m0s" },
    serviceAccount: { reconcilerPeriod: "5m0s" },
    namespace: { reconcilerPeriod: "5m0s" },
    loadBalancer: { assignIPs: "AllServices" },
    migration: { policyNameMigrator: "Enabled" },
  },
} as const satisfies ConfigurationSpec;

/** Copies of Kubernetes' objects are needed only where Calico's datastore is not Kubernetes. */
const MIRRORS: readonly ControllerName[] = ["policy", "workloadEndpoint", "serviceAccount", "namespace"];

export interface Effective {
  readonly config: RunningConfig;
  readonly status: ConfigurationStatus;
  /** Equal texts mean that nothing has to change. */
  readonly fingerprint: string;
}

export function effectiveConfig(
  spec: ConfigurationSpec,
  environment: EnvironmentSettings,
  inKubernetes: boolean,
): Effective {
  const sections = spec.controllers ?? {};
  const runs = (name: ControllerName): boolean =>
    (environment.enabled === undefined ? sections[name] !== undefined : environment.enabled.has(name)) &&
    !(inKubernetes && MIRRORS.includes(name));
  const periodOf = (text: string | undefined): number | undefined =>
    environment.reconcilerPeriodNs ?? (text === undefined ? undefined : parseDuration(text));

  const logSeverity = environment.logSeverity ?? spec.logSeverityScreen ?? "Info";
  const healthChecks = environment.healthChecks ?? spec.healthChecks ?? "Enabled";
  const compactionNs =
    environment.compactionPeriodNs ??
    parseDuration(spec.etcdV3CompactionPeriod ?? DEFAULT_SPEC.etcdV3CompactionPeriod) ??
    0;
  const policyNameMigrator = sections.migration?.policyNameMigrator ?? "Enabled";
  const node = runs("node") ? nodeSection(sections.node ?? {}, environment, inKubernetes) : undefined;
  const loadBalancer = runs("loadBalancer")
    ? { assignIPs: sections.loadBalancer?.assignIPs ?? "AllServices" }
    : undefined;
  const mirrors = MIRRORS.filter(runs).map((name) => {
    const section = sections[name] as { readonly reconcilerPeriod?: string } | undefined;
    return [name, periodOf(section?.reconcilerPeriod)] as const;
  });

  const graceNs = node?.leakGracePeriod === undefined ? undefined : parseDuration(node.leakGracePeriod);
  const config: RunningConfig = {
    logSeverity,
    healthChecks: healthChecks === "Enabled",
    compactionPeriodMs: compactionNs / 1e6,
    metricsPort: spec.prometheusMetricsPort ?? 0,
    ...(node === undefined
      ? {}
      : {
          node: {
            syncLabels: node.syncLabels === "Enabled",
            hostEndpoints: node.hostEndpoint ?? {},
            ...(graceNs === undefined ? {} : { leakGraceMs: graceNs / 1e6 }),
          },
        }),
    ...Object.fromEntries(mirrors.map(([name, ns]) => [name, period(ns, (value) => value / 1e6)])),
    ...(loadBalancer === undefined ? {} : { loadBalancer }),
    policyNameMigrator: policyNameMigrator === "Enabled",
  };
  const status: ConfigurationStatus = {
    runningConfig: {
      logSeverityScreen: logSeverity,
      healthChecks,
      etcdV3CompactionPeriod: formatDuration(compactionNs),
      controllers: {
        ...(node === undefined ? {} : { node }),
        ...Object.fromEntries(
          mirrors.map(([name, ns]) => [name, ns === undefined ? {} : { reconcilerPeriod: formatDuration(ns) }]),
        ),
        ...(loadBalancer === undefined ? {} : { loadBalancer }),
        migration: { policyNameMigrator },
      },
    },
    ...environmentShown(environment, inKubernetes),
  };
  // A period of the node section that nothing uses still counts: whoever changed it expects something to happen.
  const fingerprint = JSON.stringify([config, sections.node?.reconcilerPeriod, spec.debugProfilePort]);
  return { config, status, fingerprint };
}

const period = (ns: number | undefined, toMs: (ns: number) => number): Periodic =>
  ns === undefined || ns === 0 ? {} : { reconcilerPeriodMs: toMs(ns) };

/** As the status shows it; the reconciler's period is not among what it shows. */
function nodeSection(
  given: Partial<NodeSection>,
  environment: EnvironmentSettings,
  inKubernetes: boolean,
): Partial<Omit<NodeSection, "reconcilerPeriod">> {
  // In Kubernetes nodes have Kubernetes' labels as they are.
  const syncLabels = inKubernetes ? "Disabled" : (environment.syncLabels ?? given.syncLabels ?? "Enabled");
  const hostEndpoint = hostEndpointSection(given.hostEndpoint, environment.autoHostEndpoints);
  return {
    syncLabels,
    ...(hostEndpoint === undefined ? {} : { hostEndpoint }),
    ...(given.leakGracePeriod === undefined ? {} : { leakGracePeriod: given.leakGracePeriod }),
  };
}

/** Switched by a variable, the resource does not count, its templates included; switched off so, none is shown. */
function hostEndpointSection(
  given: NodeSection["hostEndpoint"] | undefined,
  switched: "Enabled" | "Disabled" | undefined,
): NodeSection["hostEndpoint"] | undefined {
  if (switched === "Disabled") return undefined;
  const asked = switched === "Enabled" ? { autoCreate: switched } : given;
  return asked === undefined ? undefined : { autoCreate: "Disabled", createDefaultHostEndpoint: "Enabled", ...asked };
}

function environmentShown(
  { variables }: EnvironmentSettings,
  inKubernetes: boolean,
): Pick<ConfigurationStatus, "environmentVars"> {
  const { SYNC_NODE_LABELS, ...others } = variables;
  const shown = {
    ...others,
    ...(inKubernetes ? { DATASTORE_TYPE: "kubernetes" } : SYNC_NODE_LABELS === undefined ? {} : { SYNC_NODE_LABELS }),
  };
  return Object.keys(shown).length === 0 ? {} : { environmentVars: shown };
}
