import { describe, expect, test } from "bun:test";
import type { Labels, Resource } from "../../model/index.ts";
import { HIDDEN_LABELS, KUBE_LABELS, withKubernetesLabels } from "./labels.ts";

const node = (labels?: Labels, annotations?: Labels): Resource =>
  ({
    apiVersion: "projectcalico.org/v3",
    kind: "Node",
    metadata: {
      name: "n1",
      ...(labels === undefined ? {} : { labels }),
      ...(annotations === undefined ? {} : { annotations }),
    },
    spec: { orchRefs: [{ orchestrator: "k8s", nodeName: "n1" }] },
  }) as Resource;
const quiet = () => {};
const synced = (before: Resource, kubernetes: Labels) => withKubernetesLabels(before, kubernetes, quiet) ?? before;

describe("TC-K15 labels of nodes", () => {
  test("TC-K15 Kubernetes' labels are copied and noted", () => {
    const { metadata } = synced(node({ own: "1" }), { zone: "a", disk: "ssd" });
    expect(metadata.labels).toEqual({ own: "1", zone: "a", disk: "ssd" });
    expect(metadata.annotations).toEqual({ [KUBE_LABELS]: '{"disk":"ssd","zone":"a"}' });
  });

  test("TC-K15 what is so already is not written", () => {
    const before = synced(node(), { zone: "a" });
    expect(withKubernetesLabels(before, { zone: "a" }, quiet)).toBeUndefined();
    expect(withKubernetesLabels(node({ own: "1" }), {}, quiet)).toBeUndefined();
  });

  test("TC-K15 a label that leaves Kubernetes leaves the node; the user's stay", () => {
    const before = synced(node({ own: "1" }), { zone: "a", disk: "ssd" });
    const after = synced(before, { zone: "b" });
    expect(after.metadata.labels).toEqual({ own: "1", zone: "b" });
    expect(synced(after, {}).metadata).toMatchObject({ labels: { own: "1" }, annotations: { [KUBE_LABELS]: "null" } });
  });

  test("TC-K15 a user's label that Kubernetes hides comes back when the other goes", () => {
    const hidden = synced(node({ zone: "mine" }), { zone: "a" });
    expect(hidden.metadata.labels).toEqual({ zone: "a" });
    expect(hidden.metadata.annotations?.[HIDDEN_LABELS]).toBe('{"zone":"mine"}');
    const changed = synced(hidden, { zone: "b" });
    expect(changed.metadata.labels).toEqual({ zone: "b" });
    const after = synced(changed, {});
    expect(after.metadata.labels).toEqual({ zone: "mine" });
    expect(after.metadata.annotations).toEqual({ [KUBE_LABELS]: "null" });
  });

  test("TC-K15 a label changed on our side is put right", () => {
    const before = synced(node(), { zone: "a" });
    const tampered = { ...before, metadata: { ...before.metadata, labels: { zone: "x" } } };
    expect(synced(tampered, { zone: "a" }).metadata.labels).toEqual({ zone: "a" });
  });

  test("TC-K15 a note that is no JSON is said and written anew; the sync goes on", () => {
    const said: string[] = [];
    const after = withKubernetesLabels(node({ own: "1" }, { [KUBE_LABELS]: "{" }), { zone: "a" }, (problem) =>
      said.push(problem),
    );
    expect(after?.metadata.labels).toEqual({ own: "1", zone: "a" });
    expect(said).toHaveLength(1);
  });
});
