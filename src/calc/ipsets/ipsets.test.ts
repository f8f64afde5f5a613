import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Cidr, cidrContains } from "../../lib/ip/ip.ts";
import { ParsedSelector } from "../../model/index.ts";
import { endpointSlice, hep, networkSet, policy, REMOTE, rule, wep } from "../testing/build.ts";
import { GraphHarness } from "../testing/run.ts";
import { summarize } from "../testing/summary.ts";
import { namedPortSet, selectorSet, serviceSet } from "./ip-set.ts";
import { MemberSet } from "./member-set.ts";

const vectors = [
  {
    name: "everything",
    id: selectorSet(ParsedSelector.parse("all()")).id,
    want: "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug",
  },
  {
    name: "a selector written carelessly",
    id: selectorSet(ParsedSelector.parse("! (has( b)||! has(a ))")).id,
    want: "s:Iss0uCleLYv1GSv_pNm7hAO58kE9jAx1NKyG3Q",
  },
  { name: "a service", id: serviceSet("default/nginx", true).id, want: "svc:RETMWMZ3VCy3Kifv2Qin5MvOA9hFePnt82nebg" },
];
for (const { name, id, want } of vectors) test(`FC-092 the ID of an IP set: ${name}`, () => expect(id).toBe(want));

test("FC-092 sets of different kinds have different IDs", () => {
  const all = ParsedSelector.parse("all()");
  const ids = [
    selectorSet(all).id,
    namedPortSet(all, "tcp", "http").id,
    namedPortSet(all, "udp", "http").id,
    namedPortSet(all, "any", "http").id,
    serviceSet("a/b", true).id,
    serviceSet("a/b", false).id,
  ];
  expect(new Set(ids).size).toBe(ids.length);
  expect(serviceSet("a/b", false).type).toBe("net");
  expect(serviceSet("a/b", true).type).toBe("ipAndPort");
});

/** Creates a set that records its events. */
function memberSet(omitNestedPrefixes: boolean) {
  const programmed = new Set<string>();
  const events: string[] = [];
  const set = new MemberSet(
    "s:x",
    {
      onMemberAdded: (_, member) => {
        if (programmed.has(member)) throw new Error(`${member} added twice`);
        programmed.add(member);
        events.push(`+${member}`);
      },
      onMemberRemoved: (_, member) => {
        if (!programmed.delete(member)) throw new Error(`${member} removed twice`);
        events.push(`-${member}`);
      },
    },
    omitNestedPrefixes,
  );
  return { set, programmed, events };
}

test("FC-048 a member stays until its last reference is removed", () => {
  const { set, events } = memberSet(false);
  set.add("10.0.0.1/32");
  set.add("10.0.0.1/32");
  set.remove("10.0.0.1/32");
  expect(events).toEqual(["+10.0.0.1/32"]);
  set.remove("10.0.0.1/32");
  expect(events).toEqual(["+10.0.0.1/32", "-10.0.0.1/32"]);
  expect(() => set.remove("10.0.0.1/32")).toThrow();
});

const arbPrefix = fc
  .tuple(
    fc.constantFrom(
      "10.0.0.0/8",
      "10.1.0.0/16",
      "10.1.2.0/24",
      "10.1.2.3/32",
      "10.2.0.0/16",
      "10.2.3.4/32",
      "fd00::/8",
      "fd00::1/128",
    ),
  )
  .map(([prefix]) => prefix as Cidr);

test("FC-051 only the outermost prefixes are programmed, regardless of the order of changes", () =>
  fc.assert(
    fc.property(fc.array(fc.tuple(arbPrefix, fc.boolean()), { maxLength: 40 }), (steps) => {
      const { set, programmed } = memberSet(true);
      const references: Cidr[] = [];
      for (const [prefix, add] of steps) {
        if (add) {
          references.push(prefix);
          set.add(prefix);
        } else if (references.includes(prefix)) {
          references.splice(references.indexOf(prefix), 1);
          set.remove(prefix);
        }
        const members = [...new Set(references)];
        const outermost = members.filter((one) => !members.some((other) => other !== one && cidrContains(other, one)));
        expect([...programmed].sort()).toEqual(outermost.sort());
      }
    }),
  ));

const bySelector = (selector: string) => policy("p", { inboundRules: [rule({ from: { selector } })] });
const setOf = (harness: GraphHarness, name: string) => summarize(harness.dataplane, [name]).sets[name];

test("FC-048 a changed address is one addition and one removal; unchanged addresses are not sent", () => {
  const harness = new GraphHarness({ routes: "none" });
  const labels = { id: "x" };
  harness.update(
    wep("ep1"),
    bySelector("id == 'x'"),
    wep("r", { host: REMOTE, labels, nets: ["10.1.0.1/32", "10.1.0.2/32"] }),
  );
  harness.inSync();
  const deltas: unknown[] = [];
  const receive = harness.dataplane.receive.bind(harness.dataplane);
  harness.dataplane.receive = (message) => {
    if (message.type === "ipSetDeltaUpdate") deltas.push([message.added, message.removed]);
    receive(message);
  };
  harness.update(wep("r", { host: REMOTE, labels, nets: ["10.1.0.2/32", "10.1.0.3/32"] })).flush();
  expect(deltas).toEqual([[["10.1.0.3/32"], ["10.1.0.1/32"]]]);
});

test("FC-049 named-port sets contain all ports with the name and protocol of workload and host endpoints", () => {
  const harness = new GraphHarness({ routes: "none" });
  const port = (name: string, protocol: string, number: number) => ({ name, protocol, port: number });
  harness.update(
    wep("ep1", {
      nets: ["10.0.0.1/32"],
      ports: [port("web", "tcp", 80), port("web", "tcp", 81), port("web", "udp", 82)],
    }),
    hep("eth0", { host: REMOTE, addresses: ["10.0.0.9"], ports: [port("web", "TCP", 90), port("other", "tcp", 91)] }),
    networkSet("n", ["10.5.0.0/16"], {}),
    policy("p", { inboundRules: [rule({ protocol: "tcp", to: { ports: [{ name: "web" }] } })] }),
  );
  harness.inSync();
  expect(setOf(harness, "all() | tcp:web")).toEqual(["10.0.0.1,tcp:80", "10.0.0.1,tcp:81", "10.0.0.9,tcp:90"]);
});

test("FC-050 a /0 prefix becomes two /1 prefixes", () => {
  const harness = new GraphHarness({ routes: "none" });
  harness.update(wep("ep1"), bySelector("n == '1'"), networkSet("n", ["0.0.0.0/0", "::/0"], { n: "1" })).inSync();
  expect(setOf(harness, "n == '1'")).toEqual(["0.0.0.0/1", "128.0.0.0/1", "8000::/1", "::/1"]);
});

test("FC-051 with iptables, nested prefixes are kept", () => {
  const harness = new GraphHarness({ routes: "none", omitNestedPrefixes: false });
  harness
    .update(wep("ep1"), bySelector("n == '1'"), networkSet("n", ["10.0.0.0/8", "10.1.0.0/16"], { n: "1" }))
    .inSync();
  expect(setOf(harness, "n == '1'")).toEqual(["10.0.0.0/8", "10.1.0.0/16"]);
});

test("FC-053 the sets of a service, with and without ports, contain the addresses of its EndpointSlices", () => {
  const harness = new GraphHarness({ routes: "none" });
  const service = { name: "nginx", namespace: "default" };
  harness.update(
    wep("ep1"),
    policy("p", { inboundRules: [rule({ from: { service } })], outboundRules: [rule({ to: { service } })] }),
    endpointSlice("a", "nginx", ["10.0.0.1"], [{ port: 80 }, {}]),
  );
  harness.inSync();
  expect(setOf(harness, "svc default/nginx")).toEqual(["10.0.0.1,tcp:80"]);
  expect(setOf(harness, "svcnoport default/nginx")).toEqual(["10.0.0.1/32"]);
  harness.update(endpointSlice("a", "nginx", ["10.0.0.2", "host.example"], [{ protocol: "SCTP", port: 80 }])).flush();
  expect(setOf(harness, "svc default/nginx")).toEqual(["10.0.0.2,sctp:80"]);
  // Invalid ports and protocols are skipped: the kernel would reject the complete set because of one.
  const odd = [{ port: 70000 }, { port: -1 }, { port: 1.5 }, { protocol: "FOO", port: 80 }, { port: 81 }];
  harness.update(endpointSlice("a", "nginx", ["10.0.0.2"], odd)).flush();
  expect(setOf(harness, "svc default/nginx")).toEqual(["10.0.0.2,tcp:81"]);
});

test("handles a selector with 10,000 terms, a policy with 5,000 rules and a set with 100,000 members", () => {
  const harness = new GraphHarness({ routes: "none" });
  const terms = Array.from({ length: 10_000 }, (_, i) => `app == 'app-${i}'`).join(" || ");
  const nets = Array.from({ length: 100_000 }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}/32`);
  harness.update(
    wep("ep1"),
    wep("r", { host: REMOTE, labels: { app: "app-9999" }, nets: ["11.0.0.1/32"] }),
    networkSet("large", [...nets, "12.0.0.0/8"], { large: "yes" }),
    policy("p", {
      inboundRules: [
        rule({ from: { selector: terms } }),
        rule({ from: { selector: "large == 'yes'" } }),
        ...Array.from({ length: 5000 }, (_, i) =>
          rule({ protocol: "tcp", to: { ports: [{ min: i + 1, max: i + 1 }] } }),
        ),
      ],
    }),
  );
  harness.inSync();
  expect(setOf(harness, terms)).toEqual(["11.0.0.1/32"]);
  expect(setOf(harness, "large == 'yes'")).toHaveLength(100_001);
  const message = harness.dataplane.objects.get("policy GlobalNetworkPolicy p");
  expect(message?.type === "activePolicyUpdate" && message.policy.inboundRules.length).toBe(5002);
});
