// Links that go together: theirs alone, wherever their other ends are.
import { describe, expect, test } from "bun:test";
import { LinkRemover } from "../../../src/kernel/index.ts";
import { isRoot, TestNamespace } from "./support.ts";

const namesOf = ({ kernel }: TestNamespace): string[] => kernel.links.list().map((link) => link.name);

function wire(from: TestNamespace, name: string, pod: TestNamespace): void {
  from.kernel.links.create({
    name,
    up: true,
    type: { kind: "veth", peer: { name: "eth0", namespaceFd: pod.handle.fd } },
  });
}

describe.skipIf(!isRoot)("link remover", () => {
  test("takes many pods' wires away at once, and nothing else", async () => {
    using own = new DisposableStack();
    const host = own.use(new TestNamespace());
    const other = own.use(new TestNamespace());
    const pods = Array.from({ length: 8 }, () => own.use(new TestNamespace()));
    const [within, foreign, empty, ...usual] = pods as [
      TestNamespace,
      TestNamespace,
      TestNamespace,
      ...TestNamespace[],
    ];
    host.addVeth("keep");
    within.addVeth("eth0", "mine"); // both ends in the pod
    wire(other, "far", foreign); // the other end in a third namespace, with an index that the host has too
    expect(other.index("far")).toBe(Math.min(host.index("keep"), host.index("keepp")));
    for (const [i, pod] of usual.entries()) wire(host, `cali${i}`, pod);
    const spared = own.use(new TestNamespace());
    wire(host, "calispared", spared);

    const remover = new LinkRemover(host.handle);
    await Promise.all([...usual, within, foreign, empty].map((pod) => remover.remove("eth0", pod.handle)));
    for (const pod of pods) expect(namesOf(pod)).toEqual(["lo"]);
    expect(namesOf(host).toSorted()).toEqual(["calispared", "keep", "keepp", "lo"]);
    expect(namesOf(other)).toEqual(["lo"]);
    expect(namesOf(spared)).toEqual(["lo", "eth0"]);

    await Promise.all([remover.remove("eth0", spared.handle), remover.remove("eth0", empty.handle)]);
    expect(namesOf(spared)).toEqual(["lo"]);
  });

  test("leaves the host's device below a pod's interface alone", async () => {
    using own = new DisposableStack();
    const host = own.use(new TestNamespace());
    const pods = Array.from({ length: 3 }, () => own.use(new TestNamespace()));
    host.addVeth("below");
    for (const [i, pod] of pods.slice(1).entries()) {
      host.ip("link", "add", `mac${i}`, "link", "below", "type", "macvlan", "mode", "bridge");
      host.ip("link", "set", `mac${i}`, "netns", pod.name, "name", "eth0");
    }
    wire(host, "cali0", pods[0]!);
    const remover = new LinkRemover(host.handle);
    // The first goes alone, the others gather meanwhile.
    await Promise.all([pods[0]!, ...pods].map((pod) => remover.remove("eth0", pod.handle)));
    for (const pod of pods) expect(namesOf(pod)).toEqual(["lo"]);
    expect(namesOf(host).toSorted()).toEqual(["below", "belowp", "lo"]);
  });

  test("a round that cannot be carried out fails, and the next one goes on", async () => {
    using own = new DisposableStack();
    const host = own.use(new TestNamespace());
    const pods = Array.from({ length: 3 }, () => own.use(new TestNamespace()));
    for (const [i, pod] of pods.entries()) wire(host, `cali${i}`, pod);
    let reads = 0;
    const here = {
      get fd(): number {
        if (++reads === 3) throw new Error("no descriptor is left"); // both ends are found, then nothing can be asked
        return host.handle.fd;
      },
    };
    const remover = new LinkRemover(here);
    const removeAll = () => Promise.allSettled(pods.map((pod) => remover.remove("eth0", pod.handle)));
    expect((await removeAll()).map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected"]);
    expect((await removeAll()).map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled"]);
    expect(namesOf(host)).toEqual(["lo"]);
  });

  test("says what went wrong to whom it concerns", async () => {
    using host = new TestNamespace();
    using pod = new TestNamespace();
    wire(host, "cali1", pod);
    const remover = new LinkRemover(host.handle);
    const outcomes = await Promise.allSettled([
      remover.remove("eth0", { fd: -1 }),
      remover.remove("eth0", { fd: -1 }),
      remover.remove("eth0", pod.handle),
      remover.remove("no/name", pod.handle),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "rejected", "fulfilled", "fulfilled"]);
    expect(namesOf(pod)).toEqual(["lo"]);
  });
});
