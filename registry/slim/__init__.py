"""The data layer of TF-Slim without TensorFlow: datasets, decoders, item handlers and data providers, in numpy.

    data sources -> reader -> records -> decoder (features -> item handlers) -> items -> provider

The modules have the names that they have in ``tf_slim.data``, so that code written for it reads the same:
``from registry import slim``, then ``slim.tfexample_decoder.TFExampleDecoder``, or short ``slim.TFExampleDecoder``.
"""
