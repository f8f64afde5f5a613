import { describe, expect, test } from "bun:test";
import type { Labels, Resource } from "../../model/index.ts";
import { HIDDEN_LABELS, KUBE_LABELS, withKubernetesLabels } from "./labels.ts";

const node = (labels?: Labels, annotations?: Labels): Resource =>
  ({
    apiVersion: "projectcalico.org/v3",
    kind: "Node",
    metadata: {
      name: "n1",
      labels,
      annotations,
    },
    spec: { orchRefs: [{ orchestrator: "k8s", nodeName: "n1" }] },
  }) as Resource;
const quiet = () => {};
const synced = (before: Resource, kubernetes: Labels) => withKubernetesLabels(before, kubernetes, quiet) ?? before;

describe("TC-K15 labels of nodes", () => {
  test("TC-K15 labels of the Kubernetes Node are copied and listed in an annotation", () => {
    const { metadata } = synced(node({ own: "1" }), { zone: "a", disk: "ssd" });
    expect(metadata.labels).toEqual({ own: "1", zone: "a", disk: "ssd" });
    expect(metadata.annotations).toEqual({ [KUBE_LABELS]: '{"disk":"ssd","zone":"a"}' });
  });

  test("TC-K15 a node that already has the labels is not written", () => {
    const before = synced(node(), { zone: "a" });
    expect(withKubernetesLabels(before, { zone: "a" }, quiet)).toBeUndefined();
    expect(withKubernetesLabels(node({ own: "1" }), {}, quiet)).toBeUndefined();
  });

  test("TC-K15 a label removed from the Kubernetes Node is removed; labels of the user are kept", () => {
    const before = synced(node({ own: "1" }), { zone: "a", disk: "ssd" });
    const after = synced(before, { zone: "b" });
    expect(after.metadata.labels).toEqual({ own: "1", zone: "b" });
    expect(synced(after, {}).metadata).toMatchObject({ labels: { own: "1" }, annotations: { [KUBE_LABELS]: "null" } });
  });

  test("TC-K15 a user's label that a Kubernetes label replaced is restored when that label is removed", () => {
    const hidden = synced(node({ zone: "mine" }), { zone: "a" });
    expect(hidden.metadata.labels).toEqual({ zone: "a" });
    expect(hidden.metadata.annotations?.[HIDDEN_LABELS]).toBe('{"zone":"mine"}');
    const changed = synced(hidden, { zone: "b" });
    expect(changed.metadata.labels).toEqual({ zone: "b" });
    const after = synced(changed, {});
    expect(after.metadata.labels).toEqual({ zone: "mine" });
    expect(after.metadata.annotations).toEqual({ [KUBE_LABELS]: "null" });
  });

  test("TC-K15 a copied label that was changed on the Calico Node is restored", () => {
    const before = synced(node(), { zone: "a" });
    const tampered = { ...before, metadata: { ...before.metadata, labels: { zone: "x" } } };
    expect(synced(tampered, { zone: "a" }).metadata.labels).toEqual({ zone: "a" });
  });

  test("TC-K15 an annotation that is not JSON is reported and replaced; labels are still copied", () => {
    const problems: string[] = [];
    const after = withKubernetesLabels(node({ own: "1" }, { [KUBE_LABELS]: "{" }), { zone: "a" }, (problem) =>
      problems.push(problem),
    );
    expect(after?.metadata.labels).toEqual({ own: "1", zone: "a" });
    expect(problems).toHaveLength(1);
  });
});
