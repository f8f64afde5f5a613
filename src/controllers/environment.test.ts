import { describe, expect, test } from "bun:test";
import { InvalidSetting, readEnvironment } from "./environment.ts";

describe("TC-K01 the environment", () => {
  test("TC-K01 without variables, nothing is overridden", () => expect(readEnvironment({})).toEqual({ variables: {} }));

  test("TC-K01 every variable is parsed, and its text is kept for the status", () => {
    const env = {
      LOG_LEVEL: "WARNING",
      RECONCILER_PERIOD: "90s",
      ENABLED_CONTROLLERS: "node,profile,policy,workloadendpoint,serviceaccount,loadbalancer",
      COMPACTION_PERIOD: "0",
      HEALTH_ENABLED: "f",
      SYNC_NODE_LABELS: "T",
      AUTO_HOST_ENDPOINTS: "Enabled",
    };
    expect(readEnvironment({ ...env, KUBECONFIG: "/k", OTHER: "x" })).toEqual({
      logSeverity: "Warning",
      reconcilerPeriodNs: 90e9,
      enabled: new Set(["node", "namespace", "policy", "workloadEndpoint", "serviceAccount", "loadBalancer"]),
      compactionPeriodNs: 0,
      healthChecks: "Disabled",
      syncLabels: "Enabled",
      autoHostEndpoints: "Enabled",
      variables: env,
    });
  });

  test("the programs that get certificates are listed by name", () => {
    expect(readEnvironment({ CALICO_CERTIFICATES: "typha" })).toEqual({ certificateUsers: ["typha"], variables: {} });
    for (const text of ["", "Typha", "typha,other", "typha, typha"])
      expect(() => readEnvironment({ CALICO_CERTIFICATES: text })).toThrow("CALICO_CERTIFICATES");
  });

  test("TC-K01 profile is another name of the controller namespace", () => {
    for (const name of ["profile", "namespace", "profile,namespace"])
      expect(readEnvironment({ ENABLED_CONTROLLERS: name }).enabled).toEqual(new Set(["namespace"]));
  });

  const refused: readonly [string, string][] = [
    ["ENABLED_CONTROLLERS", ""],
    ["ENABLED_CONTROLLERS", "node,foo"],
    ["ENABLED_CONTROLLERS", "Node"],
    ["ENABLED_CONTROLLERS", "node,"],
    ["ENABLED_CONTROLLERS", "node, policy"],
    ["ENABLED_CONTROLLERS", "flannelmigration"],
    ["ENABLED_CONTROLLERS", "flannelmigration,node"],
    ["ENABLED_CONTROLLERS", "constructor"],
    ["RECONCILER_PERIOD", "60"],
    ["RECONCILER_PERIOD", "-1m"],
    ["COMPACTION_PERIOD", "abc"],
    ["HEALTH_ENABLED", "maybe"],
    ["SYNC_NODE_LABELS", "yes"],
    ["AUTO_HOST_ENDPOINTS", "true"],
    ["LOG_LEVEL", "bogus"],
  ];
  for (const [variable, value] of refused)
    test(`TC-K01 rejects ${variable}=${value}`, () =>
      expect(() => readEnvironment({ [variable]: value })).toThrow(InvalidSetting));
});
