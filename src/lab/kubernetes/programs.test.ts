import { expect, test } from "bun:test";
import { stagedModules } from "./programs.ts";

test("modules at exactly v0.0.0 are part of the requiring repository; pseudo-versions are not", () => {
  const goMod = `module k8s.io/kubernetes
require (
	k8s.io/api v0.0.0
	k8s.io/cri-api v0.0.0
	k8s.io/kube-openapi v0.0.0-20260317180543-43fb72c5454a
	k8s.io/utils v0.0.0-20260210185600-b8788abfbbc2
	github.com/google/cadvisor v0.56.2
)
`;
  expect(stagedModules(goMod)).toEqual(["k8s.io/api", "k8s.io/cri-api"]);
});
