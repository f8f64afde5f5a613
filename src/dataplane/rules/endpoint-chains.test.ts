import { expect, test } from "bun:test";
import type { RulesConfig } from "./config.ts";
import { endpointChain, type EndpointChainInput } from "./endpoint-chains.ts";
import type { TableName } from "./rule.ts";
import { chainText, plainConfig } from "./testing.ts";

const comment = (text: string) => `-m comment --comment "${text}"`;
const ESTABLISHED = "-m conntrack --ctstate RELATED,ESTABLISHED";
const INVALID = "-m conntrack --ctstate INVALID --jump DROP";
const BEGIN = "--jump MARK --set-mark 0/0x30000";
const ACCEPTED = "-m mark --mark 0x10000/0x10000";
const NOT_PASSED = "-m mark --mark 0/0x20000";
const NO_VXLAN = `${comment("Drop VXLAN encapped packets originating in workloads")} -p 17 -m multiport --destination-ports 4789 --jump DROP`;
const NO_IPIP = `${comment("Drop IPinIP encapped packets originating in workloads")} -p 4 --jump DROP`;
const CLOSED = `${comment("Drop if no profiles matched")} --jump DROP`;
const POLICY_ACCEPTED = `${comment("Return if policy accepted")} ${ACCEPTED} --jump RETURN`;

const INPUT: EndpointChainInput = {
  name: "cali-x",
  direction: "ingress",
  use: "normal",
  isWorkload: true,
  adminUp: true,
  tiers: [],
  profileChains: [],
  allow: "accept",
};
const text = (
  input: Partial<EndpointChainInput> = {},
  config: Partial<RulesConfig> = {},
  tableName: TableName = "filter",
) => {
  const whole = plainConfig(config);
  return chainText(endpointChain(whole, { ...INPUT, ...input }), tableName, whole);
};

test("FD-070 without policy or profile, only established connections are allowed", () => {
  expect(text()).toEqual([`${ESTABLISHED} --jump ACCEPT`, INVALID, BEGIN, CLOSED]);
});

test("FD-070 encapsulated packets of a workload are denied, unless configured otherwise", () => {
  const begin = [`${ESTABLISHED} --jump ACCEPT`, INVALID, BEGIN];
  expect(text({ direction: "egress" })).toEqual([...begin, NO_VXLAN, NO_IPIP, CLOSED]);
  expect(text({ direction: "egress" }, { allowVxlanFromWorkloads: true })).toEqual([...begin, NO_IPIP, CLOSED]);
  expect(text({ direction: "egress" }, { allowIpipFromWorkloads: true })).toEqual([...begin, NO_VXLAN, CLOSED]);
  expect(text({ direction: "egress", isWorkload: false })).toEqual([...begin, CLOSED]); // a host may
});

test("FD-070 a disabled endpoint is one rule", () => {
  const tiers = [{ name: "default", chains: ["cali-pi-a"], endsInDrop: true }];
  expect(text({ adminUp: false, tiers, profileChains: ["cali-pri-a"] })).toEqual([
    `${comment("Endpoint admin disabled")} --jump DROP`,
  ]);
});

test("FD-070 tiers in order, each with a deny or pass at its end, then profiles, then a deny", () => {
  const tiers = [
    { name: "security", chains: ["cali-pi-a", "cali-gi-b"], endsInDrop: true },
    { name: "default", chains: ["cali-pi-c"], endsInDrop: false },
  ];
  expect(text({ tiers, profileChains: ["cali-pri-p", "cali-pri-q"] }).slice(3)).toEqual([
    `${comment("Start of tier security")} --jump MARK --set-mark 0/0x20000`,
    `${NOT_PASSED} --jump cali-pi-a`,
    POLICY_ACCEPTED,
    `${NOT_PASSED} --jump cali-gi-b`,
    POLICY_ACCEPTED,
    `${comment("End of tier security. Drop if no policies passed packet")} ${NOT_PASSED} --jump DROP`,
    `${comment("Start of tier default")} --jump MARK --set-mark 0/0x20000`,
    `${NOT_PASSED} --jump cali-pi-c`,
    POLICY_ACCEPTED,
    ...["p", "q"].flatMap((profile) => [
      `--jump cali-pri-${profile}`,
      `${comment("Return if profile accepted")} ${ACCEPTED} --jump RETURN`,
    ]),
    CLOSED,
  ]);
});

test("FD-070 the packet rate limit is first, then established connections, the connection limit, and failsafe ports", () => {
  const limited = text({
    packetRate: { packetsPerSecond: 100, burst: 20 },
    maxConnections: 7,
    failsafeChain: "cali-failsafe-in",
  });
  expect(limited.slice(4)).toEqual([
    `${ESTABLISHED} --jump ACCEPT`,
    INVALID,
    `${comment("Reject connections over ingress connection limit")} -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m connlimit --connlimit-above 7 --connlimit-mask 0 -j REJECT --reject-with tcp-reset`,
    "--jump cali-failsafe-in",
    BEGIN,
    CLOSED,
  ]);
  expect(limited[1]).toContain("-m limit --limit 100/sec --limit-burst 20 --jump MARK --set-mark 0x80000/0x80000");
});

test("FD-070 if the allow action is return, established connections get the accept mark", () => {
  expect(text({ allow: "return" }, { filterAllow: "return" }).slice(0, 3)).toEqual([
    `${ESTABLISHED} --jump MARK --set-mark 0x10000/0x10000`,
    `${ESTABLISHED} --jump RETURN`,
    INVALID,
  ]);
  expect(text({}, { disableConntrackInvalidCheck: true })).not.toContain(INVALID);
});

test("FD-070 forwarded traffic of a host endpoint is allowed without policy, and has no profiles", () => {
  const forward = { use: "forward", isWorkload: false, profileChains: ["cali-pri-p"] } as const;
  expect(text({ ...forward, allowsByDefault: true }).slice(3)).toEqual([
    `${comment("Allow forwarded traffic by default")} --jump MARK --set-mark 0x10000/0x10000`,
    `${comment("Return for accepted forward traffic")} --jump RETURN`,
  ]);
  const tiers = [{ name: "default", chains: ["cali-pi-a"], endsInDrop: true }];
  expect(text({ ...forward, tiers }).at(-1)).toContain("End of tier default. Drop");
});

for (const use of ["normal", "forward"] as const)
  test(`FD-070 ${use}: with flow logs on, a tier whose policies are all staged logs that it passes`, () => {
    const tiers = [{ name: "default", chains: [], endsInDrop: false }];
    const log = (prefix: string) =>
      `${NOT_PASSED} --jump NFLOG --nflog-group 1 --nflog-prefix ${prefix} --nflog-size 80`;
    const lines = text({ use, isWorkload: false, tiers }, { flowLogs: true });
    expect(lines.slice(3, 5)).toEqual([
      `${comment("Start of tier default")} --jump MARK --set-mark 0/0x20000`,
      log("PPI|default"),
    ]);
    expect(text({ use, isWorkload: false, tiers }).join("\n")).not.toContain("NFLOG");
  });

test("FD-070 an allowed packet of an untracked policy is not tracked; untracked and pre-DNAT tiers do not end in a drop", () => {
  const tiers = [{ name: "default", chains: ["cali-pi-a"], endsInDrop: true }];
  const more = { isWorkload: false, failsafeChain: "cali-failsafe-in", tiers } as const;
  const start = `${comment("Start of tier default")} --jump MARK --set-mark 0/0x20000`;
  expect(text({ ...more, use: "untracked" }, {}, "raw")).toEqual([
    "--jump cali-failsafe-in",
    BEGIN,
    start,
    `${NOT_PASSED} --jump cali-pi-a`,
    `${ACCEPTED} --jump NOTRACK`,
    POLICY_ACCEPTED,
  ]);
  expect(text({ ...more, use: "preDnat" }, {}, "mangle")).toEqual([
    `${ESTABLISHED} --jump ACCEPT`,
    INVALID,
    "--jump cali-failsafe-in",
    BEGIN,
    start,
    `${NOT_PASSED} --jump cali-pi-a`,
    POLICY_ACCEPTED,
  ]);
});

test("FD-070 with deny action Reject, packets are rejected and comments say so, but only in the filter table", () => {
  const reject = { deny: "reject" } as const;
  expect(text({}, reject).at(-1)).toBe(`${comment("Reject if no profiles matched")} --jump REJECT`);
  expect(text({}, reject, "mangle").at(-1)).toBe(`${comment("Reject if no profiles matched")} --jump DROP`);
});
