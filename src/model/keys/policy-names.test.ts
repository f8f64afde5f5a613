import { expect, test } from "bun:test";
import { policyNameAnnotation, storedPolicyNames, userPolicyName } from "./policy-names.ts";
import { loadSchema } from "../validation/schemas.ts";

test("DM-043 up to 3.28, policies are stored as default.<name>; the prefixes knp and ossg are kept", () => {
  expect(userPolicyName("default.web", undefined, undefined)).toBe("web");
  expect(userPolicyName("knp.default.web", undefined, undefined)).toBe("knp.default.web");
  expect(userPolicyName("ossg.default.x.y", undefined, undefined)).toBe("ossg.default.x.y");
  expect(storedPolicyNames("web")).toEqual(["web", "default.web"]);
  expect(storedPolicyNames("knp.default.web")).toEqual(["knp.default.web"]);
});

test("DM-044 from 3.29 to 3.31, policies are stored as <tier>.<name>, the name that users see", () => {
  expect(userPolicyName("sec.web", "sec", undefined)).toBe("sec.web");
  expect(userPolicyName("default.web", "default", undefined)).toBe("web");
  expect(userPolicyName("sec.web", "sec", policyNameAnnotation("web"))).toBe("web");
});

test("DM-045 later, policies are stored under the user's name, which is also in an annotation", () => {
  expect(policyNameAnnotation("default.web")).toBe('{"name":"default.web"}');
  expect(userPolicyName("default.web", "default", '{"name":"default.web"}')).toBe("default.web");
  expect(userPolicyName("default.web", "default", "not json")).toBe("web");
});

test("DM-045 names have at most one dot; those of namespaced policies may have the prefix knp or ossg", async () => {
  const accepts = async (kind: "NetworkPolicy" | "GlobalNetworkPolicy", name: string) => {
    const metadata = kind === "NetworkPolicy" ? { name, namespace: "ns" } : { name };
    return (await loadSchema(kind)).validate({ kind, metadata, spec: {} }, "create").ok;
  };
  for (const kind of ["NetworkPolicy", "GlobalNetworkPolicy"] as const) {
    for (const name of ["a", "a.b", "default.x", "a".repeat(253), "1-a"]) expect(await accepts(kind, name)).toBe(true);
    for (const name of ["a.b.c", "A", "a..b", "-a", "a.", "a".repeat(254), ""])
      expect(await accepts(kind, name)).toBe(false);
  }
  for (const name of ["knp.default.a.b", "ossg.default.x"]) {
    expect(await accepts("NetworkPolicy", name)).toBe(true);
    expect(await accepts("GlobalNetworkPolicy", name)).toBe(false);
  }
});
