import { expect, test } from "bun:test";
import { isMounted } from "./init-command.ts";

test("NB-015 only the last mount at a path counts", () => {
  const line = (at: string, type: string) => `30 23 0:26 / ${at} rw,nosuid shared:4 - ${type} none rw`;
  expect(isMounted(line("/sys/fs/bpf", "bpf"), "bpf", "/sys/fs/bpf")).toBe(true);
  expect(isMounted([line("/sys/fs/bpf", "bpf"), line("/sys/fs/bpf", "tmpfs")].join("\n"), "bpf", "/sys/fs/bpf")).toBe(
    false,
  );
  expect(isMounted(line("/sys/fs/bpf/tc", "bpf"), "bpf", "/sys/fs/bpf")).toBe(false);
});
