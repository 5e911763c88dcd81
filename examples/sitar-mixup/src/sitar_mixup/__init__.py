"""Mixup and striped images for sitar. Nothing is imported here, so that presets are listed without torch."""
