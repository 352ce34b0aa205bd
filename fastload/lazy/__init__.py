"""Lazy Pillow images: an image that Pillow opens in a worker stays a recipe until its pixels are read."""
