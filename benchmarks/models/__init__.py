"""The networks that are explained."""
