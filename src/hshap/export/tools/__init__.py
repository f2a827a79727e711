"""Findings for annotation tools: Label Studio, CVAT, Datumaro and FiftyOne."""
