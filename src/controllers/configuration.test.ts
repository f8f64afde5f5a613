import { describe, expect, test } from "bun:test";
import { type ConfigurationSpec, DEFAULT_SPEC, effectiveConfig } from "./configuration.ts";
import { readEnvironment } from "./environment.ts";

const effective = (spec: object, env: Record<string, string> = {}, inKubernetes = false) =>
  effectiveConfig(spec as ConfigurationSpec, readEnvironment(env), inKubernetes);
const running = (spec: object, env: Record<string, string> = {}, inKubernetes = false) =>
  effective(spec, env, inKubernetes).config;
const MINUTE = 60_000;

describe("TC-K02 the effective configuration", () => {
  test("TC-K02 has these defaults", () => {
    expect(running(DEFAULT_SPEC)).toEqual({
      logSeverity: "Info",
      healthChecks: true,
      compactionPeriodMs: 10 * MINUTE,
      metricsPort: 9094,
      node: {
        syncLabels: true,
        hostEndpoints: { autoCreate: "Disabled", createDefaultHostEndpoint: "Enabled" },
        leakGraceMs: 15 * MINUTE,
      },
      policy: { reconcilerPeriodMs: 5 * MINUTE },
      workloadEndpoint: { reconcilerPeriodMs: 5 * MINUTE },
      serviceAccount: { reconcilerPeriodMs: 5 * MINUTE },
      namespace: { reconcilerPeriodMs: 5 * MINUTE },
      loadBalancer: { assignIPs: "AllServices" },
      policyNameMigrator: true,
    });
  });

  test("TC-K02 a controller without a section does not run", () => {
    const { node, policy, loadBalancer, namespace } = running({ controllers: { policy: { reconcilerPeriod: "1m" } } });
    expect({ node, loadBalancer, namespace }).toEqual({
      node: undefined,
      loadBalancer: undefined,
      namespace: undefined,
    });
    expect(policy).toEqual({ reconcilerPeriodMs: MINUTE });
  });

  test("TC-K02 the environment overrides the resource, which overrides the defaults", () => {
    const spec = {
      logSeverityScreen: "Debug",
      healthChecks: "Disabled",
      etcdV3CompactionPeriod: "1m",
      controllers: { node: { syncLabels: "Disabled", hostEndpoint: { autoCreate: "Disabled" } }, policy: {} },
    };
    expect(running(spec)).toMatchObject({
      logSeverity: "Debug",
      healthChecks: false,
      compactionPeriodMs: MINUTE,
      node: { syncLabels: false },
    });
    const env = {
      LOG_LEVEL: "error",
      HEALTH_ENABLED: "true",
      COMPACTION_PERIOD: "0",
      SYNC_NODE_LABELS: "true",
      AUTO_HOST_ENDPOINTS: "enabled",
      RECONCILER_PERIOD: "7s",
    };
    expect(running(spec, env)).toMatchObject({
      logSeverity: "Error",
      healthChecks: true,
      compactionPeriodMs: 0,
      node: { syncLabels: true, hostEndpoints: { autoCreate: "Enabled" } },
      policy: { reconcilerPeriodMs: 7000 },
    });
  });

  test("TC-K02 ENABLED_CONTROLLERS overrides the sections; a controller without a section then has no period", () => {
    const spec = { controllers: { policy: { reconcilerPeriod: "1m" }, node: {} } };
    const config = running(spec, { ENABLED_CONTROLLERS: "namespace,loadbalancer" });
    expect([config.policy, config.node]).toEqual([undefined, undefined]);
    expect(config.namespace).toEqual({});
    expect(config.loadBalancer).toEqual({ assignIPs: "AllServices" });
    const timed = running(spec, { ENABLED_CONTROLLERS: "namespace", RECONCILER_PERIOD: "1m" });
    expect(timed.namespace).toEqual({ reconcilerPeriodMs: MINUTE });
  });

  test("TC-K02 a leak grace period of 0 differs from a missing one", () => {
    expect(running({ controllers: { node: { leakGracePeriod: "0s" } } }).node?.leakGraceMs).toBe(0);
    expect(running({ controllers: { node: {} } }).node?.leakGraceMs).toBeUndefined();
  });
});

describe("TC-K03 the status", () => {
  const shownSection = (node: object, env: Record<string, string> = {}) => {
    const { config, status } = effectiveConfig({ controllers: { node } } as never, readEnvironment(env), false);
    const { controllers } = status.runningConfig as { controllers: { node?: { hostEndpoint?: object } } };
    return { shown: controllers.node?.hostEndpoint, used: config.node?.hostEndpoints as object };
  };
  test("TC-K03 host endpoints: shows defaults for fields that the resource does not set", () => {
    const understood = { autoCreate: "Disabled", createDefaultHostEndpoint: "Enabled" };
    expect(shownSection({ hostEndpoint: {} }).shown).toEqual(understood);
    expect(shownSection({ hostEndpoint: { autoCreate: "Enabled" } }).shown).toEqual({
      ...understood,
      autoCreate: "Enabled",
    });
    expect(shownSection({}).shown).toBeUndefined();
  });
  test("TC-K03 host endpoints: a variable overrides the whole section of the resource", () => {
    const node = {
      hostEndpoint: {
        autoCreate: "Disabled",
        createDefaultHostEndpoint: "Disabled",
        templates: [{ generateName: "t" }],
      },
    };
    const on = { autoCreate: "Enabled", createDefaultHostEndpoint: "Enabled" };
    expect(shownSection(node, { AUTO_HOST_ENDPOINTS: "enabled" })).toEqual({ shown: on, used: on });
    expect(shownSection(node, { AUTO_HOST_ENDPOINTS: "disabled" })).toEqual({ shown: undefined, used: {} });
  });
  const listed = (env: Record<string, string>, inKubernetes: boolean) =>
    Object.keys(
      (effective(DEFAULT_SPEC, env, inKubernetes).status.runningConfig as { controllers: object }).controllers,
    );

  test("TC-K03 lists only the running controllers", () => {
    const all = ["node", "policy", "workloadEndpoint", "serviceAccount", "namespace", "loadBalancer", "migration"];
    expect(listed({}, false)).toEqual(all);
    expect(listed({}, true)).toEqual(["node", "loadBalancer", "migration"]);
    expect(listed({ ENABLED_CONTROLLERS: "node,policy" }, true)).toEqual(["node", "migration"]);
    expect(listed({ ENABLED_CONTROLLERS: "policy" }, false)).toEqual(["policy", "migration"]);
  });

  test("TC-K03 shows the effective values, without ports and without the period of the node section", () => {
    const { status } = effective(DEFAULT_SPEC, { RECONCILER_PERIOD: "10s", ENABLED_CONTROLLERS: "node,policy" });
    expect(status).toEqual({
      runningConfig: {
        logSeverityScreen: "Info",
        healthChecks: "Enabled",
        etcdV3CompactionPeriod: "10m0s",
        controllers: {
          node: {
            syncLabels: "Enabled",
            hostEndpoint: { autoCreate: "Disabled", createDefaultHostEndpoint: "Enabled" },
            leakGracePeriod: "15m0s",
          },
          policy: { reconcilerPeriod: "10s" },
          migration: { policyNameMigrator: "Enabled" },
        },
      },
      environmentVars: { RECONCILER_PERIOD: "10s", ENABLED_CONTROLLERS: "node,policy" },
    });
  });

  test("TC-K03 shows environment variables only if some are set", () => {
    expect(effective(DEFAULT_SPEC).status.environmentVars).toBeUndefined();
    expect(effective(DEFAULT_SPEC, { SYNC_NODE_LABELS: "true" }, true).status.environmentVars).toEqual({
      DATASTORE_TYPE: "kubernetes",
    });
  });
});

test("TC-K04 only a change of the effective configuration causes a restart", () => {
  const fingerprint = (spec: object, env: Record<string, string> = {}) => effective(spec, env).fingerprint;
  const other = { ...DEFAULT_SPEC, logSeverityScreen: "Debug" };
  expect(fingerprint(other)).not.toBe(fingerprint(DEFAULT_SPEC));
  expect(fingerprint(other, { LOG_LEVEL: "info" })).toBe(fingerprint(DEFAULT_SPEC, { LOG_LEVEL: "info" }));
  expect(fingerprint({ ...DEFAULT_SPEC, prometheusMetricsPort: 9095 })).not.toBe(fingerprint(DEFAULT_SPEC));
  const period = { ...DEFAULT_SPEC, controllers: { ...DEFAULT_SPEC.controllers, policy: { reconcilerPeriod: "1m" } } };
  const masked = { ENABLED_CONTROLLERS: "node" };
  expect(fingerprint(period, masked)).toBe(fingerprint(DEFAULT_SPEC, masked));
});
