import { expect, test } from "bun:test";
import type { DataplaneMessage } from "./messages.ts";
import { EventSequencer } from "./sequencer.ts";

function flushed(sequencer: EventSequencer): DataplaneMessage[] {
  const messages: DataplaneMessage[] = [];
  sequencer.flush((message) => messages.push(message));
  return messages;
}
const host = (name: string) =>
  ({ type: "hostMetadataUpdate", hostname: name, ipv4Addr: "", ipv6Addr: "", asNumber: "", labels: {} }) as const;
const hostRemove = (name: string) => ({ type: "hostMetadataRemove", hostname: name, ipv4Addr: "" }) as const;

test("FC-081 sends only the latest message per object, and none for an object that was created and removed", () => {
  const sequencer = new EventSequencer();
  sequencer.hosts.update("a", { ...host("a"), ipv4Addr: "1" });
  sequencer.hosts.update("a", { ...host("a"), ipv4Addr: "2" });
  sequencer.hosts.update("b", host("b"));
  sequencer.hosts.remove("b", hostRemove("b"));
  expect(flushed(sequencer)).toEqual([{ ...host("a"), ipv4Addr: "2" }]);
  sequencer.hosts.remove("a", hostRemove("a"));
  sequencer.hosts.update("a", host("a"));
  expect(flushed(sequencer)).toEqual([host("a")]);
  sequencer.hosts.remove("a", hostRemove("a"));
  expect(flushed(sequencer)).toEqual([hostRemove("a")]);
  sequencer.hosts.remove("a", hostRemove("a"));
  expect(flushed(sequencer)).toEqual([]);
});

test("FC-081 omits members that were added and removed; sends a re-created set completely", () => {
  const { ipSets } = new EventSequencer();
  const sequencer = new EventSequencer();
  const sets = sequencer.ipSets;
  sets.add("s", "net");
  sets.addMember("s", "1");
  sets.addMember("s", "2");
  sets.removeMember("s", "2");
  expect(flushed(sequencer)).toEqual([{ type: "ipSetUpdate", id: "s", setType: "net", members: ["1"] }]);
  sets.addMember("s", "3");
  sets.removeMember("s", "3");
  sets.removeMember("s", "1");
  sets.addMember("s", "1");
  expect(flushed(sequencer)).toEqual([]);
  sets.removeMember("s", "1");
  sets.addMember("s", "4");
  expect(flushed(sequencer)).toEqual([{ type: "ipSetDeltaUpdate", id: "s", added: ["4"], removed: ["1"] }]);
  sets.remove("s");
  sets.add("s", "net");
  sets.addMember("s", "5");
  expect(flushed(sequencer)).toEqual([{ type: "ipSetUpdate", id: "s", setType: "net", members: ["5"] }]);
  expect(() => sets.add("s", "net")).toThrow("already exists");
  expect(() => ipSets.addMember("unknown", "1")).toThrow("unknown");
});

test("FC-082 sends objects before the objects that refer to them, and removes them after", () => {
  const sequencer = new EventSequencer();
  const kinds = {
    policy: sequencer.policies,
    profile: sequencer.profiles,
    endpoint: sequencer.endpoints,
    account: sequencer.serviceAccounts,
    namespace: sequencer.namespaces,
    route: sequencer.routes,
    vtep: sequencer.vteps,
    wireguard: sequencer.wireguard,
    host: sequencer.hosts,
    pool: sequencer.pools,
    service: sequencer.services,
  };
  const named = (name: string) => host(name) as DataplaneMessage;
  for (const [name, pending] of Object.entries(kinds)) pending.update("old", named(`${name} old`));
  sequencer.ipSets.add("old", "net");
  sequencer.ipSets.add("kept", "net");
  flushed(sequencer);
  sequencer.ipSets.add("new", "net");
  sequencer.ipSets.addMember("kept", "1");
  sequencer.ipSets.remove("old");
  for (const [name, pending] of Object.entries(kinds)) {
    pending.remove("old", named(`-${name}`));
    pending.update("new", named(`+${name}`));
  }
  sequencer.setEncapsulation({
    type: "encapsulation",
    ipipEnabled: false,
    vxlanEnabled: false,
    vxlanEnabledV6: false,
    noEncapNeeded: false,
  });
  sequencer.setBgpConfig({
    type: "globalBgpConfigUpdate",
    serviceClusterCidrs: [],
    serviceExternalCidrs: [],
    serviceLoadBalancerCidrs: [],
    localWorkloadPeeringIpV4: "",
    localWorkloadPeeringIpV6: "",
  });
  const order: string[] = [];
  sequencer.beforeMessages(() => order.push("not ready"));
  sequencer.beforeMessages(() => order.push("config"));
  sequencer.flush((message) => order.push(message.type === "hostMetadataUpdate" ? message.hostname : message.type));
  expect(order).toEqual([
    "not ready",
    "config",
    "ipSetUpdate",
    "ipSetDeltaUpdate",
    "+policy",
    "+profile",
    "+endpoint",
    "-endpoint",
    "-profile",
    "-policy",
    "ipSetRemove",
    "-account",
    "+account",
    "-namespace",
    "+namespace",
    "-route",
    "-vtep",
    "+vtep",
    "+route",
    "-wireguard",
    "+wireguard",
    "-host",
    "+host",
    "-pool",
    "+pool",
    "encapsulation",
    "globalBgpConfigUpdate",
    "-service",
    "+service",
  ]);
});
