// Removal of many links in groups: exactly these links are deleted, wherever their other ends are.
import { describe, expect, test } from "bun:test";
import { LinkRemovalQueue } from "../../../src/kernel/index.ts";
import { isRoot, RtnetlinkNamespace } from "./rtnetlink-namespace.ts";

const namesOf = ({ kernel }: RtnetlinkNamespace): string[] => kernel.links.list().map((link) => link.name);

function addPodVeth(from: RtnetlinkNamespace, name: string, pod: RtnetlinkNamespace): void {
  from.kernel.links.create({
    name,
    up: true,
    type: { kind: "veth", peer: { name: "eth0", namespaceFd: pod.handle.fd } },
  });
}

describe.skipIf(!isRoot)("link removal queue", () => {
  test("removes the interfaces of many pods, and no other links", async () => {
    using own = new DisposableStack();
    const host = own.use(new RtnetlinkNamespace());
    const other = own.use(new RtnetlinkNamespace());
    const pods = Array.from({ length: 8 }, () => own.use(new RtnetlinkNamespace()));
    const [within, foreign, empty, ...usual] = pods as [
      RtnetlinkNamespace,
      RtnetlinkNamespace,
      RtnetlinkNamespace,
      ...RtnetlinkNamespace[],
    ];
    host.addVeth("keep");
    within.addVeth("eth0", "mine"); // both ends in the pod
    addPodVeth(other, "far", foreign); // the other end in a third namespace, with an index that the host has too
    expect(other.index("far")).toBe(Math.min(host.index("keep"), host.index("keepp")));
    for (const [i, pod] of usual.entries()) addPodVeth(host, `cali${i}`, pod);
    const spared = own.use(new RtnetlinkNamespace());
    addPodVeth(host, "calispared", spared);

    const queue = new LinkRemovalQueue(host.handle);
    await Promise.all([...usual, within, foreign, empty].map((pod) => queue.remove("eth0", pod.handle)));
    for (const pod of pods) expect(namesOf(pod)).toEqual(["lo"]);
    expect(namesOf(host).toSorted()).toEqual(["calispared", "keep", "keepp", "lo"]);
    expect(namesOf(other)).toEqual(["lo"]);
    expect(namesOf(spared)).toEqual(["lo", "eth0"]);

    await Promise.all([queue.remove("eth0", spared.handle), queue.remove("eth0", empty.handle)]);
    expect(namesOf(spared)).toEqual(["lo"]);
  });

  test("does not remove the host's device below a pod's macvlan interface", async () => {
    using own = new DisposableStack();
    const host = own.use(new RtnetlinkNamespace());
    const pods = Array.from({ length: 3 }, () => own.use(new RtnetlinkNamespace()));
    host.addVeth("below");
    for (const [i, pod] of pods.slice(1).entries()) {
      host.ip("link", "add", `mac${i}`, "link", "below", "type", "macvlan", "mode", "bridge");
      host.ip("link", "set", `mac${i}`, "netns", pod.name, "name", "eth0");
    }
    addPodVeth(host, "cali0", pods[0]!);
    const queue = new LinkRemovalQueue(host.handle);
    // The first is removed alone; the others are queued meanwhile.
    await Promise.all([pods[0]!, ...pods].map((pod) => queue.remove("eth0", pod.handle)));
    for (const pod of pods) expect(namesOf(pod)).toEqual(["lo"]);
    expect(namesOf(host).toSorted()).toEqual(["below", "belowp", "lo"]);
  });

  test("an error of one batch does not affect the next batch", async () => {
    using own = new DisposableStack();
    const host = own.use(new RtnetlinkNamespace());
    const pods = Array.from({ length: 3 }, () => own.use(new RtnetlinkNamespace()));
    for (const [i, pod] of pods.entries()) addPodVeth(host, `cali${i}`, pod);
    let reads = 0;
    const here = {
      get fd(): number {
        if (++reads === 3) throw new Error("no descriptor is left"); // after both host ends were found
        return host.handle.fd;
      },
    };
    const queue = new LinkRemovalQueue(here);
    const removeAll = () => Promise.allSettled(pods.map((pod) => queue.remove("eth0", pod.handle)));
    expect((await removeAll()).map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected"]);
    expect((await removeAll()).map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled"]);
    expect(namesOf(host)).toEqual(["lo"]);
  });

  test("reports an error only to the removal that it concerns", async () => {
    using host = new RtnetlinkNamespace();
    using pod = new RtnetlinkNamespace();
    addPodVeth(host, "cali1", pod);
    const queue = new LinkRemovalQueue(host.handle);
    const outcomes = await Promise.allSettled([
      queue.remove("eth0", { fd: -1 }),
      queue.remove("eth0", { fd: -1 }),
      queue.remove("eth0", pod.handle),
      queue.remove("no/name", pod.handle),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "rejected", "fulfilled", "fulfilled"]);
    expect(namesOf(pod)).toEqual(["lo"]);
  });
});
