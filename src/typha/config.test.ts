import { expect, test } from "bun:test";
import { silentLogger } from "../lib/log/log.ts";
import { resolveConfig, TyphaConfigError } from "./config.ts";
import { fairShare, rebalance } from "./rebalance.ts";

test("TC-T01 the environment has precedence over the file, and the file over defaults", () => {
  const file = "[global]\nServerPort = 1\n# comment\nServerHost: here\n[other]\nHealthPort=2\nHealthPort=3\n";
  const { config, warnings } = resolveConfig(
    { TYPHA_SERVERPORT: "4", Typha_HealthEnabled: "yes", TYPHA_UNKNOWN: "x" },
    file,
  );
  expect(config).toMatchObject({ ServerPort: 4, ServerHost: "here", HealthPort: 3, HealthEnabled: true });
  expect(config).toMatchObject({
    DatastoreType: "etcdv3",
    SnapshotCacheMaxBatchSize: 100,
    ServerPongTimeoutSecs: 60_000,
  });
  expect(warnings).toEqual(["HealthPort is set twice in the configuration file; using the last value"]);
});

const values: readonly { name: string; text: string; want: unknown; fault?: RegExp }[] = [
  { name: "HealthEnabled", text: "T", want: true },
  { name: "HealthEnabled", text: "maybe", want: false, fault: /want true or false/ },
  { name: "PrometheusGoMetricsEnabled", text: "none", want: false },
  { name: "ServerPort", text: "0x10", want: 16 },
  { name: "ServerPort", text: "1.5", want: 0, fault: /whole number/ },
  { name: "ServerPort", text: "none", want: 0 },
  { name: "SnapshotCacheMaxBatchSize", text: "0", want: 100, fault: /from 1/ },
  { name: "SnapshotCacheMaxBatchSize", text: "none", want: 100, fault: /cannot be none/ },
  { name: "MaxConnectionsLowerLimit", text: "3000000000", want: 400, fault: /whole number/ },
  { name: "ServerMaxFallBehindSecs", text: "1.5", want: 1500 },
  { name: "ServerMaxFallBehindSecs", text: "90s", want: 300_000, fault: /seconds/ },
  { name: "ConnectionRebalancingMode", text: "KUBERNETES", want: "kubernetes" },
  { name: "LogSeverityScreen", text: "debug", want: "DEBUG" },
  { name: "LogSeverityScreen", text: "loud", want: "INFO", fault: /want one of/ },
  { name: "EtcdEndpoints", text: "http://a:1, http://b:2", want: ["http://a:1", "http://b:2"] },
  { name: "EtcdEndpoints", text: "http://a:1,https://b:2", want: [], fault: /the same scheme/ },
  { name: "EtcdEndpoints", text: "http://a:1/path", want: [], fault: /without path or user/ },
  { name: "EtcdKeyFile", text: "/not/there", want: "", fault: /no such file/ },
  { name: "ServerHost", text: "None", want: "" },
];
for (const { name, text, want, fault } of values)
  test(`TC-T01 ${name}=${text}`, () => {
    const { config, warnings } = resolveConfig({ [`TYPHA_${name.toUpperCase()}`]: text });
    expect(config[name as keyof typeof config] as unknown).toEqual(want);
    if (fault === undefined) expect(warnings).toEqual([]);
    else expect(warnings.join()).toMatch(fault);
  });

test("TC-T01 an invalid datastore type or file stops the program", () => {
  expect(() => resolveConfig({ TYPHA_DATASTORETYPE: "zookeeper" })).toThrow(TyphaConfigError);
  expect(() => resolveConfig({}, "ServerPort 1")).toThrow("line 1: want name = value");
  expect(resolveConfig({ TYPHA_SERVERHOST: "" }, "").config.ServerHost).toBe("");
});

const limits = { lower: 400, upper: 10_000 };
const shares = [
  { typhas: 0, nodes: 5000, want: 10_000 },
  { typhas: 1, nodes: 5000, want: 10_000 },
  { typhas: 3, nodes: 10, want: 400 },
  { typhas: 3, nodes: 1000, want: 2404 },
  { typhas: 4, nodes: 1000, want: 1604 },
  { typhas: 2, nodes: 9000, want: 10_000 },
];
for (const { typhas, nodes, want } of shares)
  test(`TC-T21 ${nodes} nodes on ${typhas} servers: at most ${want} connections each`, () =>
    expect(fairShare({ typhas, nodes, pipelines: 4 }, limits)).toBe(want));

test("TC-T21 the limit is computed periodically, applied when it changes, and the upper limit after an error", async () => {
  const aborter = new AbortController();
  const answers = [3, 3, new Error("no API server"), 2];
  const applied: number[] = [];
  await rebalance(
    {
      limits,
      pipelines: 4,
      pollMs: 1,
      countTyphas: async () => {
        const answer = answers.shift();
        if (answer === undefined) aborter.abort();
        if (answer instanceof Error) throw answer;
        return answer ?? 2;
      },
      countNodes: () => 1000,
      apply: (most) => applied.push(most),
      log: silentLogger,
    },
    aborter.signal,
  );
  expect(applied).toEqual([2404, 10_000, 4804]);
});
