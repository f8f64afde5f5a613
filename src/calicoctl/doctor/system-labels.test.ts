import { expect, test } from "bun:test";
import { API_VERSION, type Labels, type Resource } from "../../model/index.ts";
import { look } from "../testing/findings.ts";
import { PODS, THREE } from "../testing/healthy.ts";

const networkSet = (labels: Labels): Resource => ({
  apiVersion: API_VERSION,
  kind: "NetworkSet",
  metadata: { name: "x", namespace: "evil", labels },
  spec: { nets: ["10.0.0.0/8"] },
});
const findings = (labels: Labels) => look([...THREE, PODS, networkSet(labels)]);

test("a stored NetworkSet with labels that claim another namespace is reported with each of them", () => {
  expect(
    findings({
      app: "list",
      "pcns.kubernetes.io/metadata.name": "monitoring",
      "projectcalico.org/serviceaccount": "scraper",
    }),
  ).toMatchObject([
    {
      id: "not-used",
      severity: "warning",
      object: "NetworkSet(evil/x)",
      problem: "NetworkSet evil/x is not enforced as it is written",
      evidence: [
        "metadata.labels.pcns.kubernetes.io/metadata.name: only the system sets this label: ignored",
        "metadata.labels.projectcalico.org/serviceaccount: only the system sets this label: ignored",
      ],
      fix: "calicoctl get networkset x -n evil -o yaml, correct it, and calicoctl apply, which rejects invalid values",
    },
  ]);
  expect(findings({ app: "list" })).toEqual([]);
});
