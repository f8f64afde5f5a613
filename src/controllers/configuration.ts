// Computes the effective configuration and the status of the KubeControllersConfiguration. Environment variables override the
// resource, which overrides the defaults. Pure.
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
    /** Undefined = only addresses of deleted nodes are released; 0 = other leaks are detected but never released. */
    readonly leakGraceMs?: number;
  };
  /** Undefined = the controller does not run. Without a period, it does not compare all objects again after the first time. */
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

/** Spec of the resource that is created if the cluster has none. */
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

export interface EffectiveConfig {
  readonly config: RunningConfig;
  readonly status: ConfigurationStatus;
  /** Equal texts mean that nothing has to change. */
  readonly fingerprint: string;
}

export function effectiveConfig(
  spec: ConfigurationSpec,
  environment: EnvironmentSettings,
  inKubernetes: boolean,
): EffectiveConfig {
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
    node:
      node === undefined
        ? undefined
        : {
            syncLabels: node.syncLabels === "Enabled",
            hostEndpoints: node.hostEndpoint ?? {},
            leakGraceMs: graceNs === undefined ? undefined : graceNs / 1e6,
          },
    ...Object.fromEntries(mirrors.map(([name, ns]) => [name, period(ns, (value) => value / 1e6)])),
    loadBalancer,
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
    ...environmentStatus(environment, inKubernetes),
  };
  // Nothing uses the period of the node section, but a change of it restarts the controllers, as a user expects.
  const fingerprint = JSON.stringify([config, sections.node?.reconcilerPeriod, spec.debugProfilePort]);
  return { config, status, fingerprint };
}

const period = (ns: number | undefined, toMs: (ns: number) => number): Periodic =>
  ns === undefined || ns === 0 ? {} : { reconcilerPeriodMs: toMs(ns) };

/** The node section as the status shows it, which is without the reconciler's period. */
function nodeSection(
  section: Partial<NodeSection>,
  environment: EnvironmentSettings,
  inKubernetes: boolean,
): Partial<Omit<NodeSection, "reconcilerPeriod">> {
  // With the Kubernetes datastore, Calico's Node is a view of the Kubernetes Node and already has its labels.
  const syncLabels = inKubernetes ? "Disabled" : (environment.syncLabels ?? section.syncLabels ?? "Enabled");
  const hostEndpoint = hostEndpointSection(section.hostEndpoint, environment.autoHostEndpoints);
  return {
    syncLabels,
    ...(hostEndpoint === undefined ? {} : { hostEndpoint }),
    ...(section.leakGracePeriod === undefined ? {} : { leakGracePeriod: section.leakGracePeriod }),
  };
}

/**
 * If the variable is set, the section of the resource is ignored, including its templates.
 * @returns undefined if the variable disables host endpoints; the status then shows no section
 */
function hostEndpointSection(
  fromResource: NodeSection["hostEndpoint"] | undefined,
  fromVariable: "Enabled" | "Disabled" | undefined,
): NodeSection["hostEndpoint"] | undefined {
  if (fromVariable === "Disabled") return undefined;
  const section = fromVariable === "Enabled" ? { autoCreate: fromVariable } : fromResource;
  return section === undefined
    ? undefined
    : { autoCreate: "Disabled", createDefaultHostEndpoint: "Enabled", ...section };
}

function environmentStatus(
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
